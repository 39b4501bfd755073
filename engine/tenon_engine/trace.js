/* Plays the trace in the page; put into trace.html by trace.py. Everything shown is set as text, never as markup. */
"use strict";
const trace = JSON.parse(document.getElementById("trace").textContent);
const SPEEDS = [["slow", 900], ["normal", 420], ["fast", 140], ["real time", null]];
const PLAY = "M4 2l10 6-10 6z", PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";
const CELL_HEIGHT = 16, CELL_GAP = 2, MAP_LEFT = 30;
const at = id => document.getElementById(id);
const hue = confidence => 40 + 150 * Math.max(0, Math.min(1, confidence));
const last = trace.steps.length + 1; // frame 0 is the empty hole, the last frame is the finished text
let frame = 0, speed = 420, timer = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/* The slots of a hole as they stand in a frame: those of its latest step. */
function slotsOf(hole, index) {
  for (let i = Math.min(index, trace.steps.length) - 1; i >= 0; i--)
    if (trace.steps[i].hole === hole) return trace.steps[i].slots;
  return null;
}

function renderCode() {
  const rows = [];
  const newRow = () => {
    const row = element("div", "row");
    row.dataset.number = trace.firstLine + rows.length;
    rows.push(row);
    row.append(element("div"));
  };
  const put = (node, live) => {
    rows.at(-1).lastChild.append(node);
    if (live) rows.at(-1).classList.add("live");
  };
  const putText = (text, className) => text.split("\n").forEach((line, i) => {
    if (i) newRow();
    if (line) put(element("span", className, line), className !== "around");
  });
  newRow();
  trace.texts.forEach((text, i) => {
    putText(text, "around");
    if (i < trace.holes.length) putHole(i, put, putText, newRow);
  });
  at("code").replaceChildren(...rows);
}

function putHole(hole, put, putText, newRow) {
  const slots = slotsOf(hole, frame);
  const [left, right] = trace.healed[hole];
  if (frame === last || !slots) {
    putText(left, "around");
    const best = frame === last && trace.holes[hole].candidates[0];
    if (best) putText(best.text, "fill");
    else put(element("span", "caret"), true);
    putText(right, "around");
    return;
  }
  const before = slotsOf(hole, frame - 1) || [];
  const fresh = trace.steps[frame - 1].hole === hole;
  slots.forEach((slot, place) => putSlot(hole, slot, place, fresh && !same(slot, before[place]), put, newRow));
}

const same = (slot, other) => other && slot.state === other.state && slot.text === other.text;

function putSlot(hole, slot, place, fresh, put, newRow) {
  const parts = slot.state === "open" ? [""] : (slot.text || "∎").split("\n");
  parts.forEach((part, i) => {
    if (i) newRow();
    const ends = i < parts.length - 1;
    if (!part && !ends && slot.state !== "open") return;
    const cell = element("span", "slot " + slot.state + (fresh && slot.state === "decided" ? " fresh" : ""), part);
    cell.style.setProperty("--hue", hue(slot.confidence));
    if (ends) cell.append(element("span", "mark", "⏎"));
    cell.onmousemove = event => showTip(event, hole, place, frame);
    cell.onmouseleave = hideTip;
    put(cell, true);
  });
}

/* The step at which a slot took the text and state it has in a frame. */
function since(hole, place, index) {
  const slot = slotsOf(hole, index)[place];
  let first = index;
  while (first > 1 && same(slot, (slotsOf(hole, first - 1) || [])[place])) first--;
  return first;
}

function showTip(event, hole, place, index) {
  const slot = slotsOf(hole, index)[place], tip = at("tip");
  const sure = slot.state === "decided" || slot.state === "provisional" ? ` · ${(100 * slot.confidence).toFixed(1)} %` : "";
  const word = slot.state === "fixed" ? "your own text" : slot.state;
  tip.replaceChildren(element("code", "", slot.state === "open" ? "slot " + (place + 1) : slot.text ? JSON.stringify(slot.text) : "END"));
  tip.append(element("div", "", `${word}${sure}${slot.state === "decided" ? ` · since step ${since(hole, place, index)}` : ""}`));
  tip.hidden = false;
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 18, innerHeight - tip.offsetHeight - 8) + "px";
}

function hideTip() { at("tip").hidden = true; }

function renderClock() {
  const total = trace.steps.length;
  const ms = frame === 0 ? 0 : frame === last ? trace.cost.total_ms : trace.steps[frame - 1].ms;
  const name = frame === 0 ? "the hole" : frame === last ? "the fill" : `step ${frame}/${total}`;
  at("clock").textContent = `${name} · ${ms.toFixed(0)} ms`;
  at("slider").value = frame;
  at("icon").setAttribute("d", timer ? PAUSE : PLAY);
}

/* One row per step, one column per slot, in the colours of the cells above; the current step is marked. */
function renderMap() {
  const canvas = at("map"), style = getComputedStyle(document.documentElement), pen = canvas.getContext("2d");
  const colour = name => style.getPropertyValue(name).trim();
  const width = canvas.clientWidth, height = Math.max(1, trace.steps.length) * CELL_HEIGHT;
  canvas.width = width * devicePixelRatio; canvas.height = height * devicePixelRatio;
  canvas.style.height = height + "px";
  pen.scale(devicePixelRatio, devicePixelRatio);
  pen.font = "10px " + colour("--mono"); pen.textBaseline = "middle"; pen.textAlign = "right";
  trace.steps.forEach((step, i) => {
    const top = i * CELL_HEIGHT, current = i === frame - 1;
    pen.fillStyle = current ? colour("--row") : "transparent";
    pen.fillRect(0, top, width, CELL_HEIGHT);
    pen.fillStyle = colour(current ? "--accent" : "--faint");
    pen.fillText((current ? "▸ " : "") + (i + 1), MAP_LEFT - 8, top + CELL_HEIGHT / 2);
    step.slots.forEach((slot, place) => paintCell(pen, colour, slot, MAP_LEFT + place * cellWidth(width), top, cellWidth(width)));
  });
}

function paintCell(pen, colour, slot, left, top, width) {
  const box = [left, top + 1, Math.max(1, width - CELL_GAP), CELL_HEIGHT - CELL_GAP];
  pen.beginPath(); pen.roundRect(...box, 3);
  if (slot.state === "decided") pen.fillStyle = `oklch(${colour("--light")} ${colour("--chroma")} ${hue(slot.confidence)})`;
  else pen.fillStyle = slot.state === "fixed" ? colour("--fixed") : "transparent";
  pen.fill();
  if (slot.state === "decided" || slot.state === "fixed") return;
  pen.beginPath(); pen.roundRect(box[0] + .5, box[1] + .5, Math.max(1, box[2] - 1), box[3] - 1, 3);
  pen.setLineDash(slot.state === "provisional" ? [3, 2] : []);
  pen.strokeStyle = colour(slot.state === "provisional" ? "--soft" : "--hatch");
  pen.stroke(); pen.setLineDash([]);
}

function cellWidth(width) {
  const columns = Math.max(1, ...trace.steps.map(step => step.slots.length));
  return Math.min(30, (width - MAP_LEFT) / columns);
}

function mapPlace(event) {
  const box = at("map").getBoundingClientRect();
  const step = Math.floor((event.clientY - box.top) / CELL_HEIGHT);
  const place = Math.floor((event.clientX - box.left - MAP_LEFT) / cellWidth(box.width));
  return { step, place, slot: trace.steps[step]?.slots[place] };
}

function renderFigures() {
  const cost = trace.cost, rate = cost.forwards ? cost.tokens / cost.forwards : 0;
  const reused = cost.reused_tokens ? `, ${cost.reused_tokens} reused` : "";
  const figures = [
    [cost.tokens, "tokens"], [cost.forwards, "denoising steps"], [rate.toFixed(2), "tokens per step"],
    [cost.context_ms.toFixed(0) + " ms", `context (${cost.context_tokens} tokens${reused})`],
    [cost.denoise_ms.toFixed(0) + " ms", "denoising"], [cost.total_ms.toFixed(0) + " ms", "in all"],
  ];
  at("figures").replaceChildren(...figures.map(([value, name]) => {
    const figure = element("div");
    figure.append(element("b", "", value), element("span", "", name));
    return figure;
  }));
}

function renderCandidates() {
  const several = trace.holes.length > 1;
  trace.holes.forEach((hole, i) => hole.candidates.forEach(candidate => {
    const row = element("div", "candidate"), bar = element("div", "bar"), level = element("i");
    level.style.width = 100 * candidate.confidence + "%";
    level.style.setProperty("--hue", hue(candidate.confidence));
    bar.append(level);
    row.append(element("pre", "", candidate.text), element("output", "", (several ? `hole ${i + 1} · ` : "") + candidate.confidence.toFixed(2)), bar);
    at("candidates").append(row);
  }));
  const notes = trace.holes.map(hole => hole.reason).filter(Boolean);
  if (!trace.holes.some(hole => hole.candidates.length)) notes.unshift("nothing to suggest");
  if (trace.stopped !== "done") notes.push("stopped by " + trace.stopped);
  at("note").textContent = notes.join(" · ");
  at("note").hidden = !notes.length;
}

function go(to) {
  frame = Math.max(0, Math.min(last, to));
  hideTip(); renderCode(); renderMap(); renderClock();
}

function pause() { clearTimeout(timer); timer = 0; renderClock(); }

function play() {
  if (frame === last) go(0);
  timer = setTimeout(tick, delay());
  renderClock();
}

function tick() {
  go(frame + 1);
  timer = frame < last ? setTimeout(tick, delay()) : 0;
  renderClock();
}

function delay() {
  if (speed !== null) return speed;
  const ms = index => (index <= 0 ? 0 : index >= last ? trace.cost.total_ms : trace.steps[index - 1].ms);
  return Math.max(0, ms(frame + 1) - ms(frame));
}

function chooseSpeed(value) {
  speed = value;
  [...at("speeds").children].forEach((button, i) => button.setAttribute("aria-pressed", SPEEDS[i][1] === value));
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  go(frame);
}

const KEYS = {
  ArrowLeft: () => { pause(); go(frame - 1); }, ArrowRight: () => { pause(); go(frame + 1); },
  Home: () => { pause(); go(0); }, End: () => { pause(); go(last); }, " ": () => (timer ? pause() : play()),
};

function start() {
  at("where").textContent = `${trace.path}:${trace.firstLine + trace.texts[0].split("\n").length - 1} · ${trace.model}${trace.instruction ? ` · “${trace.instruction}”` : ""}`;
  document.title = `${trace.path} · Tenon trace`;
  at("slider").max = last;
  at("map").closest("section").hidden = !trace.steps.length;
  at("slider").oninput = event => { go(Number(event.target.value)); pause(); };
  at("play").onclick = () => (timer ? pause() : play());
  at("theme").onclick = () => setTheme(document.documentElement.dataset.theme !== "dark");
  at("map").onclick = event => { pause(); go(mapPlace(event).step + 1); };
  at("map").onmousemove = event => {
    const { step, place, slot } = mapPlace(event);
    if (slot) showTip(event, trace.steps[step].hole, place, step + 1); else hideTip();
  };
  at("map").onmouseleave = hideTip;
  SPEEDS.forEach(([name, value]) => {
    const button = element("button", "", name);
    button.onclick = () => chooseSpeed(value);
    at("speeds").append(button);
  });
  for (let i = 0; i < 12; i++) at("scale").append(element("i")), at("scale").lastChild.style.setProperty("--hue", hue(i / 11));
  addEventListener("keydown", event => { if (KEYS[event.key] && !event.target.closest("button")) { event.preventDefault(); KEYS[event.key](); } });
  addEventListener("resize", renderMap);
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  wantsDark.onchange = () => setTheme(wantsDark.matches);
  chooseSpeed(speed); renderFigures(); renderCandidates(); setTheme(wantsDark.matches);
  reserveRows();
  const asked = /^#step=(\d+)$/.exec(location.hash);
  if (asked) go(Number(asked[1])); else setTimeout(play, 700);
}

/* Keeps the controls still while lines are added: the code panel gets the height of its tallest frame. */
function reserveRows() {
  let tallest = 0;
  for (frame = 0; frame <= last; frame++) { renderCode(); tallest = Math.max(tallest, at("code").offsetHeight); }
  at("code").style.minHeight = tallest + "px";
  go(0);
}

start();
