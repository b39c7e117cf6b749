// The site without a network: the lessons and their data are kept from the start, whatever was loaded is kept, too, and
// the rest follows, file by file, while the kernel starts. The network comes first: no old copy is shown while there is one.
(() => {
  const KEPT = "agent-lab-$version";
  const BASE = new URL("./", location.href);
  const LESSONS = $lessons;
  const REST = $rest;
  const isOurs = request => request.method === "GET" && request.url.startsWith(BASE.href)
    && !/\/api\/(drive|stdin)/.test(request.url);  // with these the kernel asks its own page
  let restFollows = false;

  function plain(request) {  // a page is the same file whichever lesson its address names
    const url = new URL(request.url);
    return url.origin + url.pathname;
  }

  async function get(request, waitFor) {
    const cache = await caches.open(KEPT);
    try {
      const answer = await fetch(request);
      if (answer.status === 200) waitFor(cache.put(plain(request), answer.clone()));
      return answer;
    } catch (unreachable) {
      const kept = await cache.match(plain(request));
      if (kept) return kept;
      throw unreachable;
    }
  }

  async function keep(path) {
    const cache = await caches.open(KEPT), request = new Request(new URL(path, BASE));
    if (!await cache.match(plain(request))) await cache.add(request).catch(() => {});
  }

  async function keepRest() {
    for (const path of REST) await keep(path);
  }

  self.addEventListener("install", event => event.waitUntil(Promise.all(LESSONS.map(keep))));

  self.addEventListener("activate", event => event.waitUntil((async () => {
    const old = (await caches.keys()).filter(name => name.startsWith("agent-lab-") && name !== KEPT);
    await Promise.all(old.map(name => caches.delete(name)));
  })()));

  self.addEventListener("fetch", event => {
    if (!isOurs(event.request)) return;
    event.stopImmediatePropagation();
    event.respondWith(get(event.request, work => event.waitUntil(work)));
    if (!restFollows && event.request.url.includes("/static/pyodide/")) {
      restFollows = true;
      event.waitUntil(keepRest());
    }
  });
})();
