// @ts-check
// Keeps a page up to date: it follows the events of the page's queue, asks for the page anew when there are some, and replaces what has changed.
// Without it the page is the same, as it was when it was asked for.
"use strict";

(() => {
  /** The page is asked for at most once in so many ms. */
  const EVERY_MS = 1000;
  /** So long after an event, for pages are made of what the gateway has read, and events come as soon as they are read elsewhere. */
  const SETTLE_MS = 200;
  /** While nothing happens, ages on the page grow: it is asked for anew after so many ms. */
  const IDLE_MS = 15000;
  /** While it could not be had it is asked for again after so many ms. */
  const RETRY_MS = 2000;
  const AWAY = "the broker is away";

  const place = document.body.dataset.events;
  /** A page about one task follows its events alone. */
  const task = document.body.dataset.task;
  /** This page only says that there is none, because the gateway has no broker. */
  const isStandIn = document.body.dataset.page === "stand-in";
  /** It says why something was not done, until somebody goes on. */
  const isStill = document.body.dataset.page === "still";
  const status = /** @type {HTMLElement | null} */ (document.getElementById("live"));
  /** The page does not change while a form is filled in or tasks are ticked. */
  const isPaused = () => document.hidden || document.querySelector("details:is(.asked, .switcher)[open], input[name=task]:checked, input[name=all]:checked") !== null;

  /** @type {EventSource | undefined} */
  let events;
  let last = 0;
  let asked = false;
  let stale = false;
  let failed = isStandIn;
  let isUnderway = false;
  /**
   * So much is the browser's clock behind that of the gateway, in ms, which counts.
   * @type {number | undefined}
   */
  let behind;

  /** @param {string} text */
  const say = (text) => {
    if (status !== null && status.textContent !== text) status.textContent = text;
  };

  /**
   * Whether somebody writes there, or has written something that was not sent yet.
   * @param {Element} part
   */
  const isInUse = (part) =>
    [...part.querySelectorAll("input:not([type=hidden]), textarea, select")].some((field) => {
      if (field === document.activeElement) return true;
      return (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) && field.value !== field.defaultValue;
    });

  /**
   * Makes a part of the page like the fresh one, and touches nothing that is alike: what has the focus or was scrolled stays as it is. A form that somebody
   * fills in is left alone, with the version that was seen.
   * @param {Node} part
   * @param {Node} fresh
   */
  const renew = (part, fresh) => {
    if (part.isEqualNode(fresh)) return;
    if (!(part instanceof Element && fresh instanceof Element)) {
      part.nodeValue = fresh.nodeValue;
      return;
    }
    if (part.matches("form") && isInUse(part)) return;
    // What somebody has opened stays open.
    const isOpened = part instanceof HTMLDetailsElement && part.open;
    for (const name of part.getAttributeNames()) if (!fresh.hasAttribute(name) && !(isOpened && name === "open")) part.removeAttribute(name);
    for (const name of fresh.getAttributeNames()) part.setAttribute(name, fresh.getAttribute(name) ?? "");
    const [ours, theirs] = [[...part.childNodes], [...fresh.childNodes]];
    if (ours.length === theirs.length && ours.every((node, at) => node.nodeName === theirs[at].nodeName)) {
      ours.forEach((node, at) => renew(node, theirs[at]));
    } else if (!isInUse(part)) {
      const link = part.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
      part.replaceChildren(...theirs);
      if (link) /** @type {HTMLElement | null} */ (part.querySelector(`a[href="${CSS.escape(link)}"]`))?.focus();
    }
  };

  /** @param {Document} fresh */
  const replace = (fresh) => {
    if (isPaused()) {
      stale = true;
      return;
    }
    // The tabs have numbers.
    for (const part of ["header nav", "main"]) {
      const [ours, theirs] = [document.querySelector(part), fresh.querySelector(part)];
      if (ours !== null && theirs !== null) renew(ours, theirs);
    }
  };

  const ask = async () => {
    asked = true;
    await new Promise((done) => setTimeout(done, Math.max(SETTLE_MS, last + EVERY_MS - Date.now())));
    asked = false;
    if (isPaused()) {
      stale = true;
      return;
    }
    last = Date.now();
    stale = false;
    isUnderway = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      failed = !answer.ok;
      const date = Date.parse(answer.headers.get("date") ?? "");
      if (!Number.isNaN(date)) behind = date - Date.now();
      if (answer.redirected) location.assign(answer.url);
      else if (failed) say(answer.status === 503 ? AWAY : "not up to date");
      else if (isStandIn) location.reload();
      else {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        // Whoever was refused the events is not given them later on.
        if (events?.readyState === EventSource.CLOSED) leave();
        follow();
        if (events?.readyState !== EventSource.CONNECTING) say(events === undefined ? "" : "live");
      }
    } catch {
      failed = true;
      say("the gateway does not answer");
    }
    isUnderway = false;
  };

  const news = () => {
    if (!asked && !isStill) void ask();
  };

  const follow = () => {
    if (place === undefined || events !== undefined) return;
    events = new EventSource(place);
    // What happened between the making of the page and the first event is on neither.
    events.addEventListener("open", () => {
      say("live");
      news();
    });
    events.addEventListener("error", () => {
      failed = true;
      say("trying to connect");
    });
    for (const name of ["task", "evicted"]) {
      events.addEventListener(name, (event) => {
        if (task === undefined || JSON.parse(event.data).id === task) news();
      });
    }
    events.addEventListener("broker-lost", () => say(AWAY));
    events.addEventListener("broker-back", () => {
      say("live");
      news();
    });
  };

  /** A browser has six connections for a host. A page that nobody sees, or that was left and is kept in order to go back to it, must not hold one of them. */
  const leave = () => {
    events?.close();
    events = undefined;
  };
  const come = () => {
    follow();
    news();
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : come()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => {
    if (event.persisted) come();
  });
  document.addEventListener("toggle", (event) => {
    if (stale && !isPaused()) news();
    if (event.target instanceof HTMLDetailsElement && event.target.open) void fill(event.target.querySelector("[data-menu]"));
  }, true);

  /**
   * Lists the queues in an opened menu. Without the list it has a link to it.
   * @param {HTMLElement | null} menu
   */
  const fill = async (menu) => {
    if (!menu?.dataset.menu) return;
    const answer = await fetch(menu.dataset.menu, { headers: { accept: "text/html" } }).catch(() => undefined);
    if (!answer?.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const names = fresh.getElementById("names");
    if (names !== null) menu.replaceChildren(names);
  };
  setInterval(() => {
    if (!isPaused() && !isUnderway && Date.now() - last > (failed ? RETRY_MS : IDLE_MS)) news();
  }, RETRY_MS / 2);

  /**
   * A duration in its two largest units, as the pages have it, in whole seconds.
   * @param {number} ms
   */
  const length = (ms) => {
    const seconds = Math.floor(ms / 1000);
    if (seconds < 60) return `${seconds} s`;
    for (const [unit, large, small, rest] of /** @type {[number, string, number, string][]} */ ([[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]])) {
      if (seconds < unit) continue;
      const more = Math.floor(seconds % unit / small);
      return `${Math.floor(seconds / unit)} ${large}` + (more > 0 ? ` ${more} ${rest}` : "");
    }
    return "0 s";
  };

  // Ages grow between two answers of the gateway.
  setInterval(() => {
    if (document.hidden || behind === undefined) return;
    for (const time of document.querySelectorAll("time")) {
      const ms = Date.now() + behind - Date.parse(time.dateTime);
      const text = ms < 0 ? `in ${length(-ms)}` : `${length(ms)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  }, 1000);

  /** @param {EventTarget | null} target */
  const closeMenu = (target) => {
    const menu = document.querySelector("details.switcher[open]");
    if (menu !== null && !(target instanceof Node && menu.contains(target))) menu.removeAttribute("open");
  };
  document.addEventListener("click", (event) => closeMenu(event.target));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeMenu(null);
    if (event.ctrlKey || event.altKey || event.metaKey || event.target instanceof Element && event.target.matches("input, textarea, select")) return;
    if (event.key === "/") {
      const field = /** @type {HTMLElement | null} */ (document.querySelector("form[role=search] input:not([type=hidden])"));
      if (field !== null) {
        event.preventDefault();
        field.focus();
      }
    }
    if (event.key === "n") /** @type {HTMLElement | null} */ (document.querySelector("a[rel=next]"))?.click();
  });

  // On a phone the tabs are wider than the window.
  document.querySelector("header [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });
  // On a phone the timeline is wider than the screen: now is at its end.
  const timeline = document.getElementById("timeline");
  if (timeline !== null) timeline.scrollLeft = timeline.scrollWidth;

  last = Date.now();
  if (!document.hidden) follow();
})();
