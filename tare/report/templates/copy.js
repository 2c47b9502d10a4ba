"use strict";
{
  const copied = async (text) => {
    if (navigator.clipboard) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch { /* a page without the right to: as below */ }
    }
    return document.execCommand("copy");
  };
  for (const code of document.querySelectorAll("code.command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy: " + code.textContent);
    button.addEventListener("click", async () => {
      window.getSelection().selectAllChildren(code);
      button.textContent = (await copied(code.textContent)) ? "Copied" : "Selected";
    });
    code.after(" ", button);
  }
}
