/** A broker with a gateway for your tests: a separate process, on free ports, that keeps nothing. */

import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { Client } from "./client.ts";
import { TIMER_MAX } from "./http.ts";

/** Creates a queue with a new name at this gateway, and returns the name. */
export async function newQueue(gateway: string): Promise<string> {
  const name = `test-${randomUUID()}`;
  await new Client({ gateways: gateway }).createQueue(name);
  return name;
}

export interface EmbeddedOptions {
  /** The program. The default is that of the environment variable `LONGHAUL_PROGRAM`, or else `longhaul` on the path. */
  program?: string;
  /** Seconds that the start may take; 30 by default. */
  startTimeout?: number;
}

/** A running `longhaul dev`. It ends with `close`, with an `await using` block, or with this process, however that ends. */
export class Embedded {
  /** The gateway. */
  readonly url: string;
  /** The broker, for clients of Apache Pulsar. */
  readonly serviceUrl: string;
  /** The broker's admin API. */
  readonly adminUrl: string;
  readonly #process: ChildProcess;
  readonly #kill: () => void;

  private constructor(process: ChildProcess, kill: () => void, started: { http: string; broker: string; admin: string }) {
    this.#process = process;
    this.#kill = kill;
    this.url = started.http;
    this.serviceUrl = started.broker;
    this.adminUrl = started.admin;
  }

  static async start({ program, startTimeout = 30 }: EmbeddedOptions = {}): Promise<Embedded> {
    if (!(startTimeout >= 0)) {
      throw new RangeError(`a time limit of ${startTimeout} s is negative or no number`);
    }
    const name = program ?? process.env["LONGHAUL_PROGRAM"] ?? "longhaul";
    const ports = ["--http", "--broker", "--admin"].flatMap((address) => [address, "127.0.0.1:0"]);
    const started = spawn(name, ["dev", "-o", "jsonl", "--until-stdin-closes", ...ports], { stdio: ["pipe", "pipe", "inherit"] });
    const kill = (): void => void started.kill();
    process.once("exit", kill);
    // A program that is not ready in time is killed, and its output ends.
    const patience = setTimeout(() => started.kill("SIGKILL"), Math.min(startTimeout * 1000, TIMER_MAX));
    try {
      const failed = once(started, "error").then(([error]) => {
        throw new Error(`\`${name}\` cannot be started: install longhaul, or name the program in LONGHAUL_PROGRAM`, { cause: error });
      });
      const lines = createInterface({ input: started.stdout });
      const ended = once(lines, "close").then(() => {
        throw new Error(`\`${name} dev\` was not ready within ${startTimeout} s, or has ended; its error output says why`);
      });
      ended.catch(() => undefined);
      const [line] = (await Promise.race([once(lines, "line"), failed, ended])) as [string];
      // It does not keep this process alive.
      started.unref();
      for (const pipe of [started.stdin, started.stdout]) (pipe as unknown as { unref(): void }).unref();
      return new Embedded(started, kill, JSON.parse(line));
    } catch (error) {
      process.off("exit", kill);
      started.kill();
      throw error;
    } finally {
      clearTimeout(patience);
    }
  }

  /** Creates a queue with a new name, and returns the name. */
  queue(): Promise<string> {
    return newQueue(this.url);
  }

  /** Ends the process. Its data is lost. */
  async close(): Promise<void> {
    process.off("exit", this.#kill);
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    this.#process.ref();
    const ended = once(this.#process, "exit");
    this.#process.kill();
    const patience = setTimeout(() => this.#process.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(patience);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
