// What pages do beyond links and forms: copying a command, and the live tail of a topic. Pages work without it.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = button.parentElement.querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.parentElement.querySelector("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

function showCopyButtons() {
  for (const each of document.querySelectorAll("[data-copy]")) each.hidden = false;
}

// The first key of the search field, and the way back out of it, as in most consoles.
document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  }
});

// On a narrow screen the menu closes when the focus leaves it, and with Escape.
document.addEventListener("keydown", (event) => {
  const menu = document.querySelector("details.menu[open]");
  if (event.key === "Escape" && menu) { menu.open = false; menu.querySelector("summary").focus(); }
});

const TAIL_ROWS_MAX = 200;

function startTail(box) {
  const rows = box.querySelector("tbody");
  const state = box.querySelector("[data-state]");
  const button = box.querySelector("[data-pause]");
  const model = box.querySelector("template");
  let source = null;
  let count = 0;

  function add(record) {
    const row = model.content.cloneNode(true).firstElementChild;
    for (const cell of row.querySelectorAll("[data-field]")) {
      const text = record[cell.dataset.field];
      if (text === null || text === undefined) { cell.textContent = "null"; cell.classList.add("faint"); }
      else cell.textContent = text;
    }
    const link = row.querySelector("a");
    if (link) link.href = `${box.dataset.records}/${encodeURIComponent(record.partition)}/${encodeURIComponent(record.offset)}`;
    rows.prepend(row);
    while (rows.children.length > TAIL_ROWS_MAX) rows.lastElementChild.remove();
    count += 1;
    state.textContent = `Live: ${count} record${count === 1 ? "" : "s"} since this page opened`;
  }

  function open() {
    source = new EventSource(box.dataset.tail);
    state.textContent = "Live: waiting for records";
    source.addEventListener("record", (event) => add(JSON.parse(event.data)));
    source.addEventListener("end", (event) => { close(); state.textContent = JSON.parse(event.data).reason; });
    source.onerror = () => { state.textContent = "The connection was lost; trying again"; };
  }

  function close() {
    if (source) source.close();
    source = null;
    button.textContent = "Resume";
    state.textContent = `Paused after ${count} record${count === 1 ? "" : "s"}`;
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    if (source) close();
    else { button.textContent = "Pause"; open(); }
  });
  open();
}

document.addEventListener("DOMContentLoaded", () => {
  showCopyButtons();
  for (const box of document.querySelectorAll("[data-tail]")) startTail(box);
});
document.addEventListener("htmx:afterSwap", showCopyButtons);
