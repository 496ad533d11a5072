/** A gateway for the tests: the one that `LONGHAUL_TEST_GATEWAY` names, or one that is started for them. */

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { Embedded, newQueue } from "../src/testing.ts";

export const GATEWAY: string = process.env["LONGHAUL_TEST_GATEWAY"] ?? (await Embedded.start()).url;

/** A queue that no other test has. */
export function queue(): Promise<string> {
  return newQueue(GATEWAY);
}

/** An answer: a status, headers and a body; none means that the connection is closed without one. */
export type Planted = [status: number, headers: Record<string, string>, body: unknown] | undefined;

/** A refusal as a gateway gives it. */
export function problem(status: number, code: string, headers: Record<string, string> = {}): Planted {
  return [status, { "Content-Type": "application/problem+json", ...headers }, { status, code, title: "", detail: "planted" }];
}

export interface Busy {
  url: string;
  /** Methods and paths. */
  paths: string[];
  asked: IncomingHttpHeaders[];
  bodies: unknown[];
  close: () => void;
}

/** A gateway that answers what a test has written for it, and keeps what it was asked. */
export function busy(...answers: Planted[]): Promise<Busy> {
  return judging(() => answers.shift());
}

/** A gateway that answers each request as a function says, by its path and body. */
export async function judging(judge: (path: string, body: unknown) => Planted): Promise<Busy> {
  const paths: string[] = [];
  const asked: IncomingHttpHeaders[] = [];
  const bodies: unknown[] = [];
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part)).on("end", () => {
      const said: unknown = JSON.parse(Buffer.concat(parts).toString() || "null");
      paths.push(`${request.method} ${request.url}`);
      asked.push(request.headers);
      bodies.push(said);
      const answer = judge(request.url ?? "", said);
      if (answer === undefined) {
        request.socket.destroy();
        return;
      }
      const [status, headers, body] = answer;
      response.writeHead(status, headers).end(status === 204 ? undefined : typeof body === "string" ? body : JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, paths, asked, bodies, close };
}

/** The URL of a port where nobody listens. */
export async function closed(): Promise<string> {
  const { url, close } = await busy();
  close();
  return url;
}
