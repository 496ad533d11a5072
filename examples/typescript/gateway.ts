/** A gateway of longhaul over HTTP: what a worker sends and gets. */

/** A task that was leased to this worker. */
export interface Lease {
  lease: string;
  task: string;
  attempt: number;
  properties: Record<string, string>;
  /** The payload is text, or else in base64. */
  payload?: string;
  payload_base64?: string;
  checkpoint_base64?: string;
  expires_at: number;
}

/** What a worker says of its task. */
export interface Report {
  status: "IN_PROGRESS" | "SUCCEEDED" | "FAILED" | "RELEASED";
  result_base64?: string;
  reason?: string;
  fatal?: boolean;
  progress?: { done: number; total: number; message: string };
  checkpoint_base64?: string;
}

/** What the gateway answers to any of these. */
export interface Answer {
  leases?: Lease[];
  expires_at?: number;
  now?: number;
  cancelled?: boolean;
  code?: string;
  detail?: string;
}

/** One queue of a gateway. */
export class Gateway {
  readonly #queue: string;

  constructor(url: string, queue: string) {
    this.#queue = `${url}/v1/queues/${queue}`;
  }

  /** The status and the answer. Status 0: there was none. */
  async #post(path: string, body: object): Promise<[number, Answer]> {
    const token = process.env["LONGHAUL_TOKEN"];
    try {
      const response = await fetch(this.#queue + path, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(10_000),
      });
      const text = await response.text();
      return [response.status, JSON.parse(text || "{}") as Answer];
    } catch (error) {
      return [0, { code: "unreachable", detail: String(error) }];
    }
  }

  /**
   * Waits for a task. The gateway answers at once when there is one. The poll is short all the same: a signal must not end it, when it may just have got a
   * task.
   */
  lease(worker: string, leaseTime: number): Promise<[number, Answer]> {
    return this.#post("/leases", { worker, wait: "2s", lease_time: leaseTime });
  }

  /** Says something of a task. */
  report(lease: string, report: Report): Promise<[number, Answer]> {
    return this.#post("/leases:report", { lease, ...report });
  }
}
