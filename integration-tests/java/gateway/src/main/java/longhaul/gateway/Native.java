package longhaul.gateway;

import java.nio.file.Files;
import longhaul.jdk.ApiClient;
import longhaul.jdk.ApiException;
import longhaul.jdk.api.V1Api;
import longhaul.jdk.api.V1Api.APISubmitTaskRequest;
import longhaul.jdk.model.KeepAlive;
import longhaul.jdk.model.Lease;
import longhaul.jdk.model.LeaseProgress;
import longhaul.jdk.model.LeaseRequest;
import longhaul.jdk.model.NewQueue;
import longhaul.jdk.model.NewTask;
import longhaul.jdk.model.Report;
import longhaul.jdk.model.ReportStatus;
import longhaul.jdk.model.Reported;
import longhaul.jdk.model.Task;

/**
 * Works with the gateway of the arguments (its URL, and a queue that nobody else uses) by the client that is generated for
 * the HTTP client of the JDK, and prints what it sees.
 */
public final class Native {
  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(arguments[0]);
    V1Api gateway = new V1Api(client);
    String queue = arguments[1];
    gateway.createQueue(queue, new NewQueue());
    NewTask submission = new NewTask().payload("hello");
    // The method without this request takes the query parameters of raw bodies, too.
    String task =
        gateway.submitTask(APISubmitTaskRequest.newBuilder().queue(queue).newTask(submission).build()).getId();
    LeaseRequest wanted = new LeaseRequest().worker("generated").wait("30s").leaseTime("1m");
    Lease lease = gateway.leaseTasks(queue, wanted).getLeases().get(0);
    say("leased " + lease.getTask().equals(task) + " " + lease.getPayload());
    LeaseProgress half = new LeaseProgress().done(1.0).total(2.0);
    Reported kept = gateway.keepLeaseAlive(queue, lease.getLease(), new KeepAlive().progress(half));
    say("kept alive, cancelled: " + kept.getCancelled() + ", longer: " + (kept.getExpiresAt() >= lease.getExpiresAt()));
    gateway.reportLease(queue, lease.getLease(), new Report().status(ReportStatus.SUCCEEDED).result("HELLO"));
    Task ended = gateway.waitForTask(queue, task, "30s");
    say(ended.getStatus() + " " + ended.getAttempts());
    say(Files.readString(gateway.getTaskResult(queue, task).toPath()));
    say("nothing to lease: " + (gateway.leaseTasks(queue, new LeaseRequest().worker("generated")) == null));
    try {
      gateway.getTask(queue, "99999:0:-1");
    } catch (ApiException refused) {
      say(refused.getCode() + " " + refused.getResponseBody().contains("task_not_found"));
    }
  }

  private static void say(String line) {
    System.out.println(line);
  }
}
