"use strict";
const form = document.getElementById("break-even-form");
const defaults = JSON.parse(form.dataset.defaults);
const answer = document.getElementById("break-even-answer");
const fields = {};
for (const name of ["image", "runs", "low", "high", "build", "megabytes", "megabits"]) {
  fields[name] = document.getElementById("break-even-" + name);
}

function runsUntil(once, saved) {
  if (once === 0) return saved >= 0 ? 0 : Infinity;
  return saved > 0 ? Math.ceil(once / saved) : Infinity;
}

function count(runs) { return runs.toLocaleString("en-US", { maximumFractionDigits: 0 }); }

function days(runs, perDay) {
  const found = runs / perDay;
  return (found < 10 ? found.toFixed(1) : count(Math.ceil(found))) + " days";
}

function signed(value) { return value < 0 ? "−" + (-value).toFixed(3) + " s" : value.toFixed(3) + " s"; }

function breakEvenText(once, low, high, perDay) {
  const fewest = runsUntil(once, high);
  const most = runsUntil(once, low);
  if (fewest === Infinity) {
    const span = low === high ? (-low).toFixed(3) : (-high).toFixed(3) + " to " + (-low).toFixed(3);
    return "Never: a run takes " + span + " s longer than without the image.";
  }
  if (most === Infinity) {
    return "After " + count(fewest) + " runs (" + days(fewest, perDay) + ") at the earliest, perhaps never: a run saves "
      + signed(low) + " to " + signed(high) + ".";
  }
  if (fewest === most) return "After " + count(most) + " runs (" + days(most, perDay) + ").";
  return "After " + count(fewest) + " to " + count(most) + " runs (" + days(fewest, perDay) + " to "
    + days(most, perDay) + ").";
}

function wrong(values) {
  const names = Object.keys(values).filter((name) => !Number.isFinite(values[name]));
  if (names.length) return "Give a number: " + fields[names[0]].labels[0].textContent.trim() + ".";
  for (const name of ["runs", "megabits"]) {
    if (values[name] <= 0) return "Give a number above zero: " + fields[name].labels[0].textContent.trim() + ".";
  }
  for (const name of ["build", "megabytes"]) {
    if (values[name] < 0) return "Give zero or more: " + fields[name].labels[0].textContent.trim() + ".";
  }
  return values.low > values.high ? "The least that a run saves is more than the most." : "";
}

function show() {
  const values = {};
  for (const name of ["runs", "low", "high", "build", "megabytes", "megabits"]) {
    values[name] = fields[name].valueAsNumber;
  }
  const problem = wrong(values);
  if (problem) {
    answer.textContent = problem;
    return;
  }
  const pull = 8 * values.megabytes / values.megabits;
  const once = values.build + pull;
  const chosen = defaults.choices[fields.image.selectedIndex];
  const own = values.low === chosen.low_s && values.high === chosen.high_s;
  answer.textContent = breakEvenText(once, values.low, values.high, values.runs) + " Paid once: " + once.toFixed(1) + " s, "
    + pull.toFixed(1) + " s of this for the pull. Modelled from " + (own ? "this study's interval." : "your numbers.");
}

function choose() {
  const chosen = defaults.choices[fields.image.selectedIndex];
  fields.low.value = chosen.low_s;
  fields.high.value = chosen.high_s;
  fields.build.value = chosen.build_s;
  fields.megabytes.value = chosen.megabytes;
  show();
}

for (const one of defaults.choices) {
  const option = document.createElement("option");
  option.textContent = one.title;
  fields.image.append(option);
}
fields.runs.value = defaults.runs_a_day;
fields.megabits.value = defaults.megabits_per_s;
fields.image.addEventListener("change", choose);
form.addEventListener("input", (event) => { if (event.target !== fields.image) show(); });
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
choose();
