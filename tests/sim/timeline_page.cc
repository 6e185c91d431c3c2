#include "tests/sim/timeline_page.h"

namespace ringkv::sim {

const char kTimelineHead[] = R"PAGE(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>kvsim timeline</title>
<style>
  body { margin: 0; font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif;
         color: #1b1f24; background: #fff; }
  header, section { padding: 10px 16px; }
  h1 { font-size: 19px; margin: 0 0 2px; }
  h2 { font-size: 15px; margin: 14px 0 6px; }
  code { font: 13px ui-monospace, "DejaVu Sans Mono", monospace;
         background: #f0f2f4; padding: 1px 5px; border-radius: 3px; }
  .violation { border-left: 4px solid #c62828; background: #fdf0f0;
               padding: 5px 10px; margin: 6px 0; cursor: pointer; }
  .violation b { color: #a31515; }
  #violations { max-height: 132px; overflow-y: auto; }
  #held { border-left: 4px solid #2e7d32; background: #eef7ee;
          padding: 5px 10px; margin: 6px 0; }
  #bar { position: sticky; top: 0; z-index: 2; background: #fff;
         border-top: 1px solid #d5d9de; border-bottom: 1px solid #d5d9de;
         padding: 6px 16px; display: flex; gap: 14px; flex-wrap: wrap;
         align-items: center; }
  button { font: inherit; padding: 2px 9px; border: 1px solid #9aa3ad;
           border-radius: 4px; background: #f6f7f9; color: #1b1f24;
           cursor: pointer; }
  button:hover { background: #e6eaee; }
  .legend { display: inline-flex; gap: 5px; align-items: center;
            white-space: nowrap; }
  #chart { display: block; width: 100%; cursor: grab; user-select: none; }
  #chart text { font-size: 12.5px; fill: #1b1f24; }
  #tip { position: fixed; z-index: 3; max-width: 560px; pointer-events: none;
         background: #fffef5; border: 1px solid #8b939c; border-radius: 4px;
         padding: 5px 9px; box-shadow: 0 2px 8px #0003; display: none;
         white-space: pre-wrap; overflow-wrap: anywhere; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: 3px 10px 3px 0; vertical-align: top;
           border-bottom: 1px solid #e4e7eb; }
  th { position: sticky; top: 0; background: #fff; }
  td.number { font-variant-numeric: tabular-nums; }
  tbody tr { cursor: pointer; }
  tbody tr:hover { background: #f2f6fb; }
  tr.named td:first-child { color: #a31515; font-weight: 700; }
</style>
</head>
<body>
<header>
  <h1 id="title"></h1>
  <div>Again: <code id="command"></code></div>
  <div id="violations"></div>
</header>
<div id="bar">
  <span>
    <button id="in" title="zoom in">+</button>
    <button id="out" title="zoom out">&minus;</button>
    <button id="all">whole run</button>
    <button id="key">all of the key</button>
    <button id="bad">the failure</button>
  </span>
  <span id="legend" style="display:flex;gap:14px;flex-wrap:wrap"></span>
</div>
<svg id="chart"></svg>
<section>
  <div>Wheel: zoom. Drag: move (the strip at the top of the drawing shows the
  whole run). Click a row or a failure to go there.</div>
  <h2 id="table-title"></h2>
  <table><thead><tr><th>operation</th><th>from (s)</th><th>took (ms)</th>
  <th>client</th><th>node</th><th>what</th><th>outcome</th><th>answer</th></tr>
  </thead><tbody id="rows"></tbody></table>
</section>
<div id="tip"></div>
<script>
)PAGE";

const char kTimelineTail[] = R"PAGE(
'use strict';
const KINDS = {get: '#1565c0', scan: '#6a3fa0', put: '#2e7d32',
               'blind put': '#00796b', delete: '#c75b00'};
const MESSAGES = [
  ['read', /^-> n\d+ (read|forward get)/, '#1565c0'],
  ['write', /^-> n\d+ (write|forward put|forward delete)(?!.*hint for)/,
   '#2e7d32'],
  ['hint, handoff', /^-> n\d+ (handoff|write .*hint for)/, '#b26a00'],
  ['repair', /^-> n\d+ repair/, '#8e24aa'],
  ['reply', /-reply/, '#6b7580']];
const RED = '#c62828', GUTTER = 92, NODE = 54, ROW = 17;
const $ = id => document.getElementById(id);
const named = new Set(D.violations.flatMap(v => v.ops));
const mine = D.ops.concat(D.reads).filter(o => o.mine);
const colourOf = m => (MESSAGES.find(k => k[1].test(m.text)) || MESSAGES[4])[2];

// --- Lanes ---

// Puts spans that overlap into rows; returns how many rows.
function stack(spans, gap) {
  const ends = [];
  for (const s of spans.slice().sort((a, b) => a.from - b.from)) {
    let row = ends.findIndex(e => e + gap <= s.from);
    if (row < 0) row = ends.length;
    ends[row] = s.to;
    s.row = row;
  }
  return Math.max(1, ends.length);
}
const lanes = [];
let height = 62;
function lane(id, label, h) {
  lanes.push({id, label, top: height, h});
  height += h;
  return lanes[lanes.length - 1];
}
const STRIP = {top: 4, h: 18}, AXIS = 44;
const faultRows = stack(D.faults, (D.end - D.began) / 14);
const faultLane = lane('faults', 'faults', Math.max(1, faultRows) * ROW + 8);
const checkLane = lane('checks', 'checks', 26);
const nodeLanes = [];
for (let i = 0; i < D.nodes; ++i) nodeLanes.push(lane('n' + i, 'n' + i, NODE));
const clientLanes = [];
for (let c = 0; c < D.clients; ++c) {
  const ops = D.ops.filter(o => o.client === c);
  // Only what concerns the key needs room of its own.
  const rows = Math.min(14, stack(ops.filter(o => o.mine), 0));
  clientLanes.push(lane('c' + c, 'c' + c, rows * ROW + 8));
  for (const o of ops) o.row = Math.min(13, o.row || 0);
}
const readLane = D.reads.length ? lane('reads', 'final reads', ROW + 8) : null;
if (readLane) for (const o of D.reads) o.row = 0;
height += 8;

// --- View ---

let view = {from: 0, to: D.end};
let width = 1000;
const x = t => GUTTER + (t - view.from) / (view.to - view.from) *
               (width - GUTTER - 12);
const timeAt = px => view.from + (px - GUTTER) / (width - GUTTER - 12) *
                     (view.to - view.from);
function show(from, to) {
  const span = Math.min(D.end * 1.02, Math.max(2e-5, to - from));
  from = Math.max(-0.01 * D.end, Math.min(from, D.end * 1.01 - span));
  view = {from, to: from + span};
  draw();
}
function around(spans) {
  if (!spans.length) return show(0, D.end);
  const from = Math.min(...spans.map(s => s.from));
  const to = Math.max(...spans.map(s => s.to));
  const pad = Math.max(0.08 * (to - from), 0.002);
  show(from - pad, to + pad);
}
function zoom(factor, at) {
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}
const opsOf = v => D.ops.concat(D.reads).filter(o => v.ops.includes(o.id));
function goTo(v) {
  const ops = opsOf(v);
  around(ops.length ? ops : [{from: v.at - 1, to: v.at + 1}]);
}

// --- Drawing ---

const NS = 'http://www.w3.org/2000/svg';
let svg = $('chart');
function add(name, attributes, tip, text) {
  const e = document.createElementNS(NS, name);
  for (const a in attributes) e.setAttribute(a, attributes[a]);
  if (tip) { e.dataset.tip = tip; }
  if (text !== undefined) e.textContent = text;
  svg.appendChild(e);
  return e;
}
const visible = s => s.to >= view.from && s.from <= view.to;
const ms = t => (t * 1000).toFixed(3) + ' ms';
const at = t => t.toFixed(6) + ' s';
function label(px, y, text, colour, anchor) {
  // White behind the letters keeps them legible over lines.
  const e = add('text', {x: px, y, 'text-anchor': anchor || 'start',
    style: `paint-order:stroke;stroke:#fff;stroke-width:3px;fill:${colour}`},
    null, text);
  return e;
}
function opTip(o) {
  return `#${o.id} ${o.strict ? 'strict ' : ''}${o.kind}` +
    (o.mine ? ' ' + D.key : ' (another key)') +
    (o.context !== undefined ? ` with the context of #${o.context}` : '') +
    (o.client >= 0 ? `\nclient c${o.client}` : '\nfinal read of all replicas') +
    (o.node >= 0 ? ` at n${o.node}` : '') +
    `\n${at(o.from)}, took ${ms(o.to - o.from)}` +
    `\n${o.outcome}${o.answer ? ': ' + o.answer : ''}`;
}
function drawAxis() {
  const span = view.to - view.from;
  let step = Math.pow(10, Math.floor(Math.log10(span / 6)));
  for (const m of [1, 2, 5, 10]) {
    if (span / (step * m) <= 9) { step *= m; break; }
  }
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const px = x(t);
    if (px < GUTTER) continue;
    add('line', {x1: px, x2: px, y1: AXIS + 6, y2: height - 6,
                 stroke: '#e7eaee'});
    label(px, AXIS, t.toFixed(digits) + ' s', '#3d4650', 'middle');
  }
}
function drawStrip() {
  const w = width - GUTTER - 12;
  const px = t => GUTTER + t / D.end * w;
  add('rect', {x: GUTTER, y: STRIP.top, width: w, height: STRIP.h,
               fill: '#eef0f3', stroke: '#c3c9d0', class: 'strip'});
  for (const o of mine) {
    add('rect', {x: px(o.from), y: STRIP.top + 5, height: STRIP.h - 10,
      width: Math.max(1, px(o.to) - px(o.from)), fill: KINDS[o.kind],
      'fill-opacity': 0.6, 'pointer-events': 'none'});
  }
  for (const v of D.violations) {
    add('rect', {x: px(v.at) - 1, y: STRIP.top, width: 2, height: STRIP.h,
                 fill: RED, 'pointer-events': 'none'});
  }
  add('rect', {x: px(Math.max(0, view.from)), y: STRIP.top - 2,
    width: Math.max(3, px(Math.min(D.end, view.to)) -
                       px(Math.max(0, view.from))),
    height: STRIP.h + 4, fill: 'none', stroke: '#1b1f24', 'stroke-width': 1.6,
    'pointer-events': 'none'});
  add('text', {x: 10, y: STRIP.top + 13}, null, 'whole run');
}
function drawPhases() {
  for (const [t, text] of [[D.began, 'workload begins'],
                           [D.healed, 'faults stop']]) {
    if (!(t > view.from && t < view.to)) continue;
    const px = x(t);
    add('line', {x1: px, x2: px, y1: AXIS + 4, y2: height - 6,
      stroke: '#5a6570', 'stroke-dasharray': '6 4'});
    label(px + 4, AXIS + 15, text, '#3d4650');
  }
}
function drawLanes() {
  lanes.forEach((l, i) => {
    if (i % 2) add('rect', {x: 0, y: l.top, width, height: l.h,
                            fill: '#fafbfc'});
    add('line', {x1: 0, x2: width, y1: l.top + l.h, y2: l.top + l.h,
                 stroke: '#d5d9de'});
  });
}
function drawGutter() {
  add('rect', {x: 0, y: 0, width: GUTTER - 4, height, fill: '#fff'});
  for (const l of lanes) {
    add('text', {x: 10, y: l.top + (l.id[0] === 'n' ? l.h / 2 + 5 : 18),
      'font-weight': l.id[0] === 'n' ? 700 : 400}, null, l.label);
  }
  add('line', {x1: GUTTER - 4, x2: GUTTER - 4, y1: AXIS + 6, y2: height,
               stroke: '#9aa3ad'});
}
function drawFaults() {
  for (const f of D.faults) {
    if (!visible(f)) continue;
    const px = Math.max(GUTTER, x(f.from));
    const w = Math.max(4, Math.min(width, x(f.to)) - px);
    const y = faultLane.top + 4 + f.row * ROW;
    const parts = f.mask > 0;
    const group = D.nodes <= 30 && parts ?
      [...Array(D.nodes).keys()].filter(i => (f.mask >> i) & 1) : [];
    add('rect', {x: px, y, width: w, height: ROW - 3, rx: 2, fill: '#f7c9a4',
      stroke: '#a85510'}, `fault ${f.text}` + (parts ?
      `\nnodes of the mask: ${group.map(i => 'n' + i).join(' ')}` : ''));
    const who = f.kind.includes('partition') && f.kind[0] !== 'p' ||
      f.kind === 'partition' ? group.map(i => 'n' + i).join('+') :
      'n' + f.node;
    label(px + 3, y + 11.5, `${f.number}: ${f.kind} ${who}`, '#5f2e04')
      .setAttribute('pointer-events', 'none');
    for (const i of parts ? group : [f.node]) {
      if (!nodeLanes[i]) continue;
      add('rect', {x: px, y: nodeLanes[i].top + 1, width: w, height: 4,
                   fill: '#e8964f'}, `fault ${f.text}`);
    }
  }
}
function drawNodes() {
  for (const s of D.states) {
    if (!visible(s)) continue;
    const l = nodeLanes[s.node];
    const px = Math.max(GUTTER, x(s.from));
    const w = Math.max(2, Math.min(width, x(s.to)) - px);
    const down = s.state === 'down';
    add('rect', {x: px, y: l.top + 5, width: w, height: l.h - 10,
      fill: down ? 'url(#down)' : '#cfe5f7', stroke: down ? '#777' : '#5b9bd0'},
      `n${s.node} is ${s.state}, ${at(s.from)} to ${at(s.to)}`);
    if (w > 44) label(px + 5, l.top + 20, s.state, '#3d4650');
  }
  for (const l of nodeLanes) {
    add('line', {x1: GUTTER, x2: width, y1: l.top + l.h / 2,
      y2: l.top + l.h / 2, stroke: '#8b939c', 'pointer-events': 'none'});
  }
  const seen = {};
  for (const n of D.notes) {
    if (n.lane < 0 || n.at < view.from || n.at > view.to) continue;
    const px = Math.round(x(n.at)), l = nodeLanes[n.lane];
    const cell = n.lane + ':' + (px >> 2);
    if (seen[cell]) { seen[cell].dataset.tip += `\n${at(n.at)}: ${n.text}`; continue; }
    seen[cell] = add('rect', {x: px - 2, y: l.top + l.h - 11, width: 5,
      height: 8, fill: '#5a6570'}, `n${n.lane}\n${at(n.at)}: ${n.text}`);
  }
}
function drawOps() {
  for (const o of D.ops.concat(D.reads).sort((a, b) => (a.mine || 0) - (b.mine || 0))) {
    if (!visible(o)) continue;
    const l = o.client >= 0 ? clientLanes[o.client] : readLane;
    if (!l) continue;
    const px = Math.max(GUTTER, x(o.from));
    const w = Math.max(3, Math.min(width, x(o.to)) - px);
    const y = l.top + 4 + (o.row || 0) * ROW;
    if (!o.mine) {
      add('rect', {x: px, y: l.top + l.h / 2 - 3, width: w, height: 6,
                   fill: '#d9dee4'}, opTip(o));
      continue;
    }
    const colour = KINDS[o.kind];
    const bad = named.has(o.id);
    const e = add('rect', {x: px, y, width: w, height: ROW - 3, rx: 2,
      fill: o.outcome === 'ok' ? colour : '#fff',
      'fill-opacity': o.outcome === 'ok' ? 0.85 : 1,
      stroke: bad ? RED : colour, 'stroke-width': bad ? 3 : 1.5,
      'stroke-dasharray': o.outcome === 'unknown' ? '4 2' : ''}, opTip(o));
    e.dataset.op = o.id;
    if (bad && o.node >= 0) {
      const ny = nodeLanes[o.node].top + NODE / 2;
      add('line', {x1: px, x2: px, y1: y, y2: ny, stroke: RED,
        'stroke-width': 1, 'stroke-dasharray': '2 3', 'pointer-events': 'none'});
      add('circle', {cx: px, cy: ny, r: 4, fill: RED},
          `#${o.id} was asked of n${o.node}`);
    }
  }
  // Labels last and only where there is room.
  const ends = {};
  const spans = mine.filter(visible).sort((a, b) =>
    named.has(b.id) - named.has(a.id) || a.from - b.from);
  const taken = {};
  for (const o of spans) {
    const l = o.client >= 0 ? clientLanes[o.client] : readLane;
    const px = Math.max(GUTTER, x(o.from)) + 4;
    const y = l.top + 4 + (o.row || 0) * ROW;
    const text = `#${o.id} ${o.kind}`;
    const w = text.length * 7.2;
    const row = taken[l.id + (o.row || 0)] ||= [];
    if (row.some(r => px < r[1] && px + w > r[0])) continue;
    row.push([px, px + w]);
    label(px, y + 12, text, named.has(o.id) ? '#a31515' : '#1b1f24')
      .setAttribute('pointer-events', 'none');
  }
}
function drawMessages() {
  const shown = D.messages.filter(m =>
    m.sent <= view.to && (m.arrived === null ? m.sent : m.arrived) >= view.from);
  for (const m of shown) {
    const a = nodeLanes[m.from], b = nodeLanes[m.to];
    const reply = /-reply/.test(m.text);
    const colour = colourOf(m);
    const y1 = a.top + a.h / 2;
    const tip = `n${m.from} ${m.text}\nsent ${at(m.sent)}` + (m.arrived === null
      ? ', never arrived' : `, arrived after ${ms(m.arrived - m.sent)}`);
    if (m.arrived === null) {
      const down = b.top > a.top ? 1 : -1;
      const px = x(m.sent);
      add('line', {x1: px, x2: px, y1, y2: y1 + down * 15, stroke: colour,
                   'stroke-width': 1.6}, tip);
      add('path', {d: `M${px - 4} ${y1 + down * 15 - 4}l8 8m0 -8l-8 8`,
        stroke: RED, 'stroke-width': 2}, tip);
      continue;
    }
    const y2 = b.top + b.h / 2;
    const line = {x1: x(m.sent), x2: x(m.arrived), y1, y2};
    add('line', {...line, stroke: 'transparent', 'stroke-width': 9}, tip);
    add('line', {...line, stroke: colour, 'stroke-width': reply ? 1 : 1.7,
      'stroke-dasharray': reply ? '4 3' : '', 'pointer-events': 'none',
      'marker-end': reply ? '' : 'url(#tip' + MESSAGES.findIndex(k => k[2] === colour) + ')'});
  }
  // With few of them there is room to say what they are.
  if (shown.length > 40) return;
  const taken = [];
  for (const m of shown) {
    if (m.arrived === null || /-reply/.test(m.text)) continue;
    const y = (nodeLanes[m.from].top * 2 + nodeLanes[m.to].top) / 3 + NODE / 2;
    const px = (x(m.sent) * 2 + x(m.arrived)) / 3 + 5;
    const text = m.text.replace(/^-> n\d+ /, '').replace(D.key + ' ', '')
                       .replace(D.key, '');
    const w = text.length * 7.2;
    if (px < GUTTER || taken.some(t => Math.abs(t[2] - y) < 13 &&
                                  px < t[1] && px + w > t[0])) continue;
    taken.push([px, px + w, y]);
    label(px, y + 4, text, colourOf(m)).setAttribute('pointer-events', 'none');
  }
}
function drawChecks() {
  const seen = {};
  let last = -1e9;
  for (const v of D.violations) {
    if (v.at < view.from || v.at > view.to) continue;
    const px = Math.round(x(v.at));
    const tip = `${v.check} ${v.key}\n${v.text}`;
    if (seen[px]) { seen[px].dataset.tip += '\n' + tip; continue; }
    add('line', {x1: px, x2: px, y1: AXIS + 6, y2: height - 6, stroke: RED,
      'stroke-width': 1.4, 'pointer-events': 'none'});
    seen[px] = add('path', {d: `M${px} ${checkLane.top + 4}l9 16h-18z`,
                            fill: RED}, tip);
    const right = px > width - 130;
    if (Math.abs(px - last) > 60) {
      label(right ? px - 13 : px + 13, checkLane.top + 18, v.check + ' fails', '#a31515',
            right ? 'end' : 'start');
      last = px;
    }
  }
}
function draw() {
  width = svg.clientWidth || 1000;
  svg.setAttribute('height', height);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.textContent = '';
  const defs = add('defs', {});
  defs.innerHTML = '<pattern id="down" width="8" height="8" ' +
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' +
    '<rect width="8" height="8" fill="#e3e5e8"/>' +
    '<rect width="3" height="8" fill="#b9bec5"/></pattern>' +
    MESSAGES.map((k, i) => `<marker id="tip${i}" viewBox="0 0 8 8" refX="7" ` +
      `refY="4" markerWidth="6" markerHeight="6" orient="auto">` +
      `<path d="M0 0L8 4L0 8z" fill="${k[2]}"/></marker>`).join('');
  drawLanes();
  drawAxis();
  drawPhases();
  drawFaults();
  drawNodes();
  drawChecks();
  drawMessages();
  drawOps();
  drawGutter();
  drawStrip();
}

// --- The rest of the page ---

function box(style) {
  return `<svg width="18" height="13"><rect x="1" y="1" width="16" height="11" rx="2" ${style}/></svg>`;
}
function arrow(colour, dash) {
  return `<svg width="22" height="13"><line x1="1" y1="7" x2="21" y2="7" ` +
    `stroke="${colour}" stroke-width="2" stroke-dasharray="${dash}"/></svg>`;
}
$('legend').innerHTML = Object.entries(KINDS).map(([name, colour]) =>
    [box(`fill="${colour}"`), name]).concat([
    [box('fill="#fff" stroke="#3d4650" stroke-dasharray="4 2"'), 'unknown'],
    [box('fill="#fff" stroke="#3d4650"'), 'refused'],
    [box('fill="#d9dee4"'), 'another key'],
    [box(`fill="#fff" stroke="${RED}" stroke-width="3"`), 'named by a check']],
  MESSAGES.map(k => [arrow(k[2], k[0] === 'reply' ? '4 3' : ''), k[0]]),
  [[`<svg width="13" height="13"><path d="M2 2l9 9m0 -9l-9 9" stroke="${RED}" stroke-width="2"/></svg>`, 'lost'],
   [box('fill="#f7c9a4" stroke="#a85510"'), 'fault'],
   [box('fill="#d0d4d9" stroke="#777"'), 'down'],
   [box('fill="#cfe5f7" stroke="#5b9bd0"'), 'frozen']])
  .map(([icon, text]) => `<span class="legend">${icon}${text}</span>`).join('');
$('title').textContent = `Seed ${D.seed}, key ${D.key || '(none)'}`;
document.title = `kvsim: seed ${D.seed}, ${D.key}`;
$('command').textContent = D.command;
for (const v of D.violations) {
  const e = document.createElement('div');
  e.className = 'violation';
  const b = document.createElement('b');
  b.textContent = `${v.check} fails `;
  e.append(b, (v.key ? v.key + ': ' : '') + v.text);
  e.onclick = () => goTo(v);
  $('violations').append(e);
}
if (!D.violations.length) {
  $('violations').innerHTML = '<div id="held">All promises held.</div>';
  $('bad').style.display = 'none';
}
$('table-title').textContent = `Operations on ${D.key}, in order`;
for (const o of mine.slice().sort((a, b) => a.from - b.from)) {
  const row = document.createElement('tr');
  if (named.has(o.id)) row.className = 'named';
  for (const text of ['#' + o.id, o.from.toFixed(6),
       ((o.to - o.from) * 1000).toFixed(3),
       o.client >= 0 ? 'c' + o.client : 'final', o.node >= 0 ? 'n' + o.node : '',
       (o.strict ? 'strict ' : '') + o.kind +
         (o.context !== undefined ? `, context of #${o.context}` : ''),
       o.outcome, o.answer]) {
    const cell = document.createElement('td');
    cell.textContent = text;
    if (row.children.length < 3) cell.className = 'number';
    row.append(cell);
  }
  row.onclick = () => { around([o]); svg.scrollIntoView({block: 'start'}); };
  $('rows').append(row);
}

svg.addEventListener('wheel', e => {
  e.preventDefault();
  zoom(e.deltaY > 0 ? 1.25 : 0.8, timeAt(e.offsetX));
}, {passive: false});
let drag = null;
svg.addEventListener('mousedown', e => {
  const strip = e.offsetY < STRIP.top + STRIP.h + 2;
  drag = {px: e.offsetX, from: view.from, to: view.to, strip};
  if (strip) moveStrip(e);
});
function moveStrip(e) {
  const t = (e.offsetX - GUTTER) / (width - GUTTER - 12) * D.end;
  const half = (view.to - view.from) / 2;
  show(t - half, t + half);
}
svg.addEventListener('mousemove', e => {
  if (drag && e.buttons) {
    if (drag.strip) return moveStrip(e);
    const moved = (drag.px - e.offsetX) / (width - GUTTER - 12) *
                  (drag.to - drag.from);
    show(drag.from + moved, drag.to + moved);
    return;
  }
  const text = e.target.dataset && e.target.dataset.tip;
  const tip = $('tip');
  tip.style.display = text ? 'block' : 'none';
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
  tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
});
addEventListener('mouseup', () => drag = null);
svg.addEventListener('mouseleave', () => $('tip').style.display = 'none');
$('in').onclick = () => zoom(0.5, (view.from + view.to) / 2);
$('out').onclick = () => zoom(2, (view.from + view.to) / 2);
$('all').onclick = () => show(0, D.end);
$('key').onclick = () => around(mine);
$('bad').onclick = () => goTo(D.violations[0]);
addEventListener('resize', draw);
if (D.violations.length) goTo(D.violations[0]); else around(mine);
</script>
</body>
</html>
)PAGE";

}  // namespace ringkv::sim
