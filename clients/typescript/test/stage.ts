/** A gateway for the tests: the one that `LONGHAUL_TEST_GATEWAY` names. */

import { randomUUID } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import assert from "node:assert/strict";

const url = process.env["LONGHAUL_TEST_GATEWAY"];
assert(url !== undefined, "LONGHAUL_TEST_GATEWAY is not set: the URL of a gateway, such as that of `longhaul dev`");

export const GATEWAY: string = url;

/** A queue that no other test has. */
export async function queue(): Promise<string> {
  const name = `typescript-${randomUUID()}`;
  const made = await fetch(`${GATEWAY}/v1/queues/${name}`, { method: "PUT" });
  assert(made.ok, await made.text());
  return name;
}

/** An answer: a status, headers and a body; none means that the connection is closed without one. */
export type Planted = [status: number, headers: Record<string, string>, body: unknown] | undefined;

/** A refusal as a gateway gives it. */
export function problem(status: number, code: string, headers: Record<string, string> = {}): Planted {
  return [status, headers, { status, code, title: "", detail: "planted" }];
}

/** A gateway that answers what a test has written for it, and keeps what it was asked. */
export async function busy(...answers: Planted[]): Promise<{ url: string; asked: IncomingHttpHeaders[]; close: () => void }> {
  const asked: IncomingHttpHeaders[] = [];
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      asked.push(request.headers);
      const answer = answers.shift();
      if (answer === undefined) {
        request.socket.destroy();
        return;
      }
      const [status, headers, body] = answer;
      response.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = (): void => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked, close };
}

/** The URL of a port where nobody listens. */
export async function closed(): Promise<string> {
  const { url, close } = await busy();
  close();
  return url;
}
