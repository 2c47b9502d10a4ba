"use strict";
{
  const field = document.getElementById("field");
  const said = document.getElementById("said");
  const sections = [...document.querySelectorAll("main > section")];
  const texts = sections.map((section) => section.innerText.toLowerCase());
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    sections.forEach((section, at) => { section.hidden = !words.every((word) => texts[at].includes(word)); });
    const count = sections.filter((section) => !section.hidden).length;
    said.textContent = words.length ? count + " of " + sections.length + " sections have these words." : "";
  };
  field.value = new URLSearchParams(window.location.search).get("q") || "";
  field.addEventListener("input", show);
  document.getElementById("ask").addEventListener("submit", (event) => { event.preventDefault(); show(); });
  show();
}
