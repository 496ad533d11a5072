package longhaul.gateway;

import java.nio.file.Files;
import java.util.List;
import longhaul.generated.ApiClient;
import longhaul.generated.ApiException;
import longhaul.generated.JSON;
import longhaul.generated.api.V1Api;
import longhaul.generated.model.KeepAlive;
import longhaul.generated.model.Lease;
import longhaul.generated.model.LeaseProgress;
import longhaul.generated.model.LeaseRequest;
import longhaul.generated.model.Leases;
import longhaul.generated.model.NewQueue;
import longhaul.generated.model.NewTask;
import longhaul.generated.model.Problem;
import longhaul.generated.model.Report;
import longhaul.generated.model.ReportOutcome;
import longhaul.generated.model.ReportStatus;
import longhaul.generated.model.Reports;
import longhaul.generated.model.Task;

/**
 * Works with the gateway of the arguments (its URL, and a queue that nobody else uses) by the generated client, and prints what it
 * sees. The client refuses answers that are not as the document says: a field that is missing, or has another type.
 */
public final class Main {
  private final V1Api gateway;
  private final String queue;

  private Main(V1Api gateway, String queue) {
    this.gateway = gateway;
    this.queue = queue;
  }

  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.setBasePath(arguments[0]);
    client.setReadTimeout(60_000);
    try {
      new Main(new V1Api(client), arguments[1]).play();
    } finally {
      // Its threads would keep the process for a minute.
      client.getHttpClient().dispatcher().executorService().shutdown();
      client.getHttpClient().connectionPool().evictAll();
    }
  }

  private void play() throws Exception {
    gateway.createQueue(queue).newQueue(new NewQueue()).execute();
    succeeds();
    fails();
    isRefused();
    looks();
  }

  private void succeeds() throws Exception {
    String task = submit("hello");
    Lease lease = lease();
    say("leased", lease.getTask().equals(task), lease.getAttempt(), lease.getPayload());
    LeaseProgress half = new LeaseProgress().done(1.0).total(2.0).message("half of it");
    boolean cancelled =
        gateway.keepLeaseAlive(queue, lease.getLease(), new KeepAlive().progress(half)).execute().getCancelled();
    say("kept alive, cancelled:", cancelled, gateway.getLeaseHolder(queue, task).execute().getWorker());
    Report report = new Report().status(ReportStatus.IN_PROGRESS).addLogItem("nearly done");
    gateway.reportLease(queue, lease.getLease(), report).execute();
    report = new Report().status(ReportStatus.SUCCEEDED).result("HELLO");
    gateway.reportLease(queue, lease.getLease(), report).execute();
    Task ended = gateway.waitForTask(queue, task).timeout("30s").execute();
    say(ended.getStatus(), ended.getAttempts());
    say(Files.readString(gateway.getTaskResult(queue, task).execute().toPath()));
  }

  private void fails() throws Exception {
    String task = submit("broken");
    Report report = new Report().status(ReportStatus.FAILED).fatal(true).reason("it is broken").lease(lease().getLease());
    List<ReportOutcome> outcomes =
        gateway.reportBatch(queue, new Reports().addReportsItem(report)).execute().getOutcomes();
    say(outcomes.get(0).getOutcome());
    say(gateway.waitForTask(queue, task).timeout("30s").execute().getStatus());
    say("dead:", gateway.listDeadLetters(queue).execute().getDeadLetters().get(0).getReason());
  }

  private void isRefused() throws Exception {
    Leases none = gateway.leaseTasks(queue, new LeaseRequest().worker("generated")).execute();
    say("nothing to lease:", none == null);
    try {
      gateway.getTask(queue, "99999:0:-1").execute();
    } catch (ApiException refused) {
      Problem problem = JSON.getGson().fromJson(refused.getResponseBody(), Problem.class);
      say(refused.getCode(), problem.getCode());
    }
  }

  /** The answers of more routes are as the document says, or this throws. */
  private void looks() throws Exception {
    List<Task> tasks = gateway.listTasks(queue).execute().getTasks();
    gateway.getTaskHistory(queue, tasks.get(0).getId()).execute();
    gateway.getDeadLetter(queue, tasks.get(1).getId()).execute();
    gateway.listWorkers(queue).execute();
    gateway.listActions(queue).execute();
    gateway.getQueue(queue).execute();
    gateway.listSchedules(queue).execute();
    gateway.listQueues().execute();
    say("tasks:", tasks.size(), gateway.countTasks(queue).execute().getTotal());
  }

  private String submit(String payload) throws ApiException {
    return gateway.submitTask(queue, new NewTask().payload(payload)).execute().getId();
  }

  private Lease lease() throws ApiException {
    LeaseRequest wanted = new LeaseRequest().worker("generated").wait("30s").leaseTime("1m");
    return gateway.leaseTasks(queue, wanted).execute().getLeases().get(0);
  }

  private static void say(Object... words) {
    StringBuilder line = new StringBuilder();
    for (Object word : words) {
      line.append(line.isEmpty() ? "" : " ").append(word);
    }
    System.out.println(line);
  }
}
