/* Follows changes: the server says that something has changed, the page is fetched again, and its content is exchanged. */
"use strict";
(() => {
  const main = document.getElementById("content");
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  let busy = false, again = false;

  const typing = () => main.querySelector("textarea:focus, input:focus, select:focus") !== null;

  async function refresh() {
    if (busy || typing()) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected) { location.reload(); return; }
      if (answer.ok) exchange(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch (error) {
      live.textContent = " · the service does not answer";
    } finally {
      busy = false;
    }
    if (again) { again = false; setTimeout(refresh, 1000); }
  }

  /* What is open stays open, and the focus stays where it is. */
  function exchange(fresh) {
    const next = fresh.getElementById("content");
    const open = [...main.querySelectorAll("details[open][id]")].map((each) => each.id);
    const focus = main.contains(document.activeElement) ? document.activeElement : null;
    const focused = focus && (focus.id || (focus.closest("details[id]") || {}).id);
    const values = [...main.querySelectorAll("textarea, input:not([type=hidden]), select")]
      .filter((each) => each.id).map((each) => [each.id, each.value]);
    if (next.dataset.said !== main.dataset.said) said.textContent = next.dataset.said;
    Object.assign(main.dataset, next.dataset);
    main.replaceChildren(...next.childNodes);
    document.querySelector("header").replaceChildren(...fresh.querySelector("header").childNodes);
    document.querySelector("footer p").firstChild.data = fresh.querySelector("footer p").firstChild.data;
    const find = (id) => main.querySelector(`[id="${id}"]`);
    for (const id of open) if (find(id)) find(id).open = true;
    for (const [id, value] of values) if (find(id)) find(id).value = value;
    if (focused && find(focused)) (find(focused).matches("details") ? find(focused).querySelector("summary") : find(focused)).focus();
  }

  if (location.search.includes("before=")) return;  // older pages stand still
  const stream = new EventSource("/events");
  stream.onmessage = (event) => {
    live.textContent = " · live";
    if (event.data !== main.dataset.stamp) refresh();
  };
  stream.onerror = () => { live.textContent = " · connecting"; };
  addEventListener("pagehide", () => stream.close());
  main.addEventListener("focusout", () => { if (again) { again = false; setTimeout(refresh, 200); } });
  setInterval(refresh, 30000);  // clocks run on
})();
