"use strict";
const data = JSON.parse(document.getElementById("entries").textContent);
const titles = JSON.parse(document.getElementById("titles").textContent);
const field = document.getElementById("field");
const list = document.getElementById("found");
const said = document.getElementById("said");
const MOST = 60;

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  list.replaceChildren();
  if (!words.length) {
    said.textContent = "Type one word or more. A sentence or a table row (with its heading) is found if it has all of them.";
    return;
  }
  let count = 0;
  for (const [place, text] of data.texts) {
    const [file, anchor, heading] = data.places[place];
    const name = data.files[file];
    const own = text.toLowerCase();
    const above = heading.toLowerCase();
    if (!words.some((word) => own.includes(word))) continue;
    if (!words.every((word) => own.includes(word) || above.includes(word))) continue;
    count += 1;
    if (count > MOST) continue;
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = name + (anchor ? "#" + anchor : "");
    link.textContent = titles[name] + (heading ? ": " + heading : "");
    const line = document.createElement("p");
    line.textContent = text;
    item.append(link, line);
    list.append(item);
  }
  const shown = count > MOST ? ", the first " + MOST + " are shown" : "";
  said.textContent = count ? count + (count === 1 ? " place" : " places") + shown + "." : "Nothing has all of these words.";
}

field.value = new URLSearchParams(window.location.search).get("q") || "";
field.addEventListener("input", show);
document.getElementById("ask").addEventListener("submit", (event) => { event.preventDefault(); show(); });
show();
