// The page of `vrdmactl web`: asks for the picture (cli/web_state.h) once a second and draws it.
// Texts in it come from tenants too, so they are only ever set as text.
'use strict';

const token = location.hash.slice(1);
const secondsOfHistory = 60;
const mostDrawn = { fabrics: 12, vdevices: 24, peers: 8 };

// ---- words ----------------------------------------------------------------------------------

const kinds = {
  context: 'open devices', pd: 'protection domains', mr: 'memory regions', mr_bytes: 'registered memory',
  cq: 'completion queues', cqe: 'longest completion queue', qp: 'queue pairs', send_wr: 'longest send queue',
  recv_wr: 'longest receive queue', srq: 'shared receive queues', ah: 'address handles', mw: 'memory windows',
  conns: 'connections to vrdmad', conn_rate: 'new connections per second', req_rate: 'requests per second',
  cm_ids: 'rdma_cm ids', cm_conns: 'rdma_cm connections', cm_rate: 'connection requests per second',
  cm_events: 'unread rdma_cm events', cm_early: 'early connection requests', mr_rate: 'registrations per second',
  bandwidth: 'bandwidth', bandwidth_min: 'guaranteed bandwidth', msg_rate: 'messages per second',
  worker_memory: 'memory for messages in vrdmad', cpu: 'processor time of vrdmad',
};
const transports = {
  direct: 'shared memory, moved by the programs', mediated: 'this host, moved by vrdmad',
  network: 'network, RoCE v2', both: 'this host and network', raw: 'raw packets',
};
const types = {
  quota: 'over quota', identity: 'not proven', protocol: 'cut off', isolation: 'from another namespace',
  hook: 'container without device', lost: 'device lost', restored: 'device restored', deleted: 'device deleted',
  takeover: 'taken over', ended: 'program cut off', worker: 'worker ended',
};
const refusals = new Set(['quota', 'identity', 'protocol', 'isolation', 'hook', 'ended']);

function number(value, unit = '') {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let power = 0;
  while (value >= 999.5 && power < prefixes.length - 1) { value /= 1000; power++; }
  const digits = value >= 99.95 || power === 0 ? 0 : value >= 9.995 ? 1 : 2;
  return value.toFixed(digits) + (unit ? ' ' : '') + prefixes[power] + unit;
}
const rate = (bytes) => (bytes > 0 ? number(bytes, 'B/s') : 'idle');
const some = (count, one) => `${count} ${one}${count === 1 ? '' : 's'}`;

// ---- elements -------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);
function element(name, classes = '', text = '') {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  if (text !== '') made.textContent = text;
  return made;
}
function shape(name, attributes, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== '') made.textContent = text;
  return made;
}
function titled(made, text) {
  made.append(shape('title', {}, text));
  return made;
}
function row(...cells) {
  const made = element('tr');
  for (const cell of cells) {
    const td = element('td');
    td.append(cell);
    made.append(td);
  }
  return made;
}

// ---- a minute of history --------------------------------------------------------------------

const history = new Map(); // "tenant NAME", "vdevice ID" or "all": bytes per second, the newest last
function remember(key, value, seconds, seen) {
  const past = history.get(key) ?? [];
  for (let i = 0; i < Math.max(1, Math.round(seconds)); i++) past.push(value);
  past.splice(0, past.length - secondsOfHistory);
  history.set(key, past);
  seen.add(key);
}
function drawSpark(svg, key) {
  const past = history.get(key) ?? [];
  const most = Math.max(...past, 1);
  const points = past.map((value, i) =>
    `${(secondsOfHistory - past.length + i) * (140 / (secondsOfHistory - 1))},${24 - 22 * (value / most)}`);
  svg.setAttribute('viewBox', '0 0 140 26');
  svg.replaceChildren(shape('polyline', { points: points.join(' ') }));
  if (past.length) titled(svg, `at most ${rate(Math.max(...past))}`);
  return svg;
}
const spark = (key) => drawSpark(shape('svg', { class: 'spark' }), key);

// ---- quotas ---------------------------------------------------------------------------------

function bars(quota, none) {
  const all = element('div');
  for (const { kind, used, limit, part } of quota) {
    const bar = element('span', 'quota', `${kinds[kind] ?? kind}: ${used} of ${limit}`);
    bar.title = kind;
    const svg = shape('svg', { viewBox: '0 0 100 6', preserveAspectRatio: 'none' });
    svg.append(shape('rect', { class: 'room', width: 100, height: 6 }),
      shape('rect', { class: part >= 0.9 ? 'use full' : 'use', width: 100 * part, height: 6 }));
    bar.append(svg);
    all.append(bar);
  }
  if (!quota.length) all.append(element('span', 'soft', none));
  return all;
}

// ---- the picture ----------------------------------------------------------------------------

const box = { width: 128, height: 46 };
const panelWidth = 460;

// Places `count` boxes: two beside each other, more on an ellipse.
function places(count) {
  if (count === 1) return { height: 115, at: [[panelWidth / 2, 66]] };
  const radius = Math.max(75, count * 15);
  const ellipse = count === 2 ? { x: 135, y: 0 } : { x: panelWidth / 2 - box.width / 2 - 14, y: radius };
  const at = [];
  for (let i = 0; i < count; i++) {
    const angle = Math.PI + (2 * Math.PI * i) / count;
    at.push([panelWidth / 2 + ellipse.x * Math.cos(angle), 62 + ellipse.y + ellipse.y * Math.sin(angle) * 0.98]);
  }
  return { height: 2 * ellipse.y + (count === 2 ? 115 : 105), at };
}

// The `most` of them with the greatest weight, in the order that they had: what is drawn stays where it is.
function busiest(all, most, weight) {
  const kept = new Set([...all].sort((a, b) => weight(b) - weight(a)).slice(0, most));
  return all.filter((one) => kept.has(one));
}

function cut(text, most) {
  return text.length > most ? text.slice(0, most - 1) + '\u2026' : text;
}

function drawBox(node, [x, y]) {
  const group = shape('g', {});
  const frame = { x: x - box.width / 2, y: y - box.height / 2, width: box.width, height: box.height, rx: 6 };
  if (node.peer) {
    group.append(shape('rect', { ...frame, class: 'box elsewhere' }),
      shape('text', { x, y: y - 3, class: 'name' }, cut(node.peer.replace('::ffff:', ''), 18)),
      shape('text', { x, y: y + 13, class: 'small' }, 'another host'));
    return titled(group, node.peer);
  }
  const v = node.vdevice;
  const isWrong = v.state !== 'ACTIVE';
  group.append(shape('rect', { ...frame, class: isWrong ? 'box wrong' : 'box' }),
    shape('text', { x, y: y - 6, class: 'name' }, cut(v.name, 18)),
    shape('text', { x, y: y + 8, class: 'small' }, cut(v.who || v.tenant, 22)),
    shape('text', { x, y: y + 19, class: 'small' }, isWrong ? v.state : some(v.queue_pairs, 'queue pair')));
  return titled(group, `${v.name}${v.tenant ? ' of tenant ' + v.tenant : ''}\nin ${v.namespace}, ${v.netdev}, ${v.address}\n` +
    `${some(v.programs, 'program')}, ${rate(v.bytes + v.by_peers)}${v.why ? '\n' + v.why : ''}`);
}

function drawLink(link, names, [x1, y1], [x2, y2], lane) {
  const bytes = link.sent + link.returned;
  // Bent away from the straight line, so that two transports between the same ends are seen apart.
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const bend = 14 + 26 * lane;
  const [mx, my] = [(x1 + x2) / 2 - (bend * (y2 - y1)) / length, (y1 + y2) / 2 + (bend * (x2 - x1)) / length];
  const [lx, ly] = [(x1 + x2) / 4 + mx / 2, (y1 + y2) / 4 + my / 2];
  const width = bytes > 0 ? Math.min(9, 1.5 + Math.log10(1 + bytes / 1e6) * 1.6) : 1.5;
  const path = shape('path', {
    d: `M${x1},${y1} Q${mx},${my} ${x2},${y2}`, 'stroke-width': width,
    class: `link ${link.transport in transports ? link.transport : ''} ${bytes > 0 ? 'busy' : 'idle'}`,
  });
  titled(path, `${names[0]} to ${names[1]}: ${rate(link.sent)}, back: ${rate(link.returned)}\n` +
    `${some(link.queue_pairs, 'queue pair')}, ${transports[link.transport] ?? link.transport}`);
  const label = shape('text', { x: lx, y: ly - 5 - width / 2, class: 'rate' }, rate(bytes));
  const how = shape('text', { x: lx, y: ly + 12 + width / 2, class: 'rate small' }, link.transport);
  return { path, labels: bytes > 0 ? [label, how] : [how] };
}

function drawFabric(vdevices, links, [left, top]) {
  const shown = busiest(vdevices, mostDrawn.vdevices, (v) => v.bytes + v.by_peers);
  const nodes = new Map(shown.map((v) => [`v${v.id}`, { vdevice: v, name: v.name }]));
  const peers = [...new Set(links.filter((l) => l.to === 0).map((l) => l.peer))].slice(0, mostDrawn.peers);
  for (const peer of peers) nodes.set(`p${peer}`, { peer, name: peer });
  const { height, at } = places(nodes.size);
  const place = new Map([...nodes.keys()].map((key, i) => [key, [left + at[i][0], top + at[i][1]]]));
  const lines = [], labels = [], boxes = [], lanes = new Map();
  for (const link of links) {
    const [from, to] = [`v${link.from}`, link.to ? `v${link.to}` : `p${link.peer}`];
    if (!place.has(from) || !place.has(to) || from === to) continue;
    const lane = lanes.get(from + to) ?? 0;
    lanes.set(from + to, lane + 1);
    const drawn = drawLink(link, [nodes.get(from).name, nodes.get(to).name], place.get(from), place.get(to), lane);
    lines.push(drawn.path);
    labels.push(...drawn.labels);
  }
  for (const [key, node] of nodes) boxes.push(drawBox(node, place.get(key)));
  const reach = vdevices[0].reach === 'host' ? 'this host only' : 'this host and others';
  const group = shape('g', {});
  group.append(shape('rect', { class: 'panel', x: left + 3, y: top + 3, width: panelWidth - 6, height: height - 6, rx: 8 }),
    shape('text', { class: 'fabric', x: left + 14, y: top + 22 }, 
      `${vdevices[0].fabric.startsWith('vdev/') ? 'alone' : 'fabric ' + vdevices[0].fabric}, ${reach}`),
    ...lines, ...boxes, ...labels);
  return { group, height, count: shown.length };
}

function drawPicture(state) {
  const picture = byId('picture');
  const fabrics = new Map();
  for (const v of state.vdevices) fabrics.set(v.fabric, [...(fabrics.get(v.fabric) ?? []), v]);
  const fabricOf = new Map(state.vdevices.map((v) => [v.id, v.fabric]));
  const all = busiest([...fabrics.values()], mostDrawn.fabrics, (vs) => vs.reduce((sum, v) => sum + v.bytes + v.by_peers, 0));
  const columns = Math.max(1, Math.min(all.length, Math.floor(picture.clientWidth / (panelWidth * 0.8)) || 1));
  const bottoms = Array(columns).fill(0);
  let undrawn = state.all_vdevices;
  const groups = [];
  for (const vdevices of all) {
    const column = bottoms.indexOf(Math.min(...bottoms));
    const drawn = drawFabric(vdevices,
      state.links.filter((l) => fabricOf.get(l.from) === vdevices[0].fabric), [column * panelWidth, bottoms[column]]);
    bottoms[column] += drawn.height + 8;
    undrawn -= drawn.count;
    groups.push(drawn.group);
  }
  const height = Math.max(...bottoms, 60);
  picture.setAttribute('viewBox', `0 0 ${columns * panelWidth} ${height}`);
  // No larger than it was designed.
  picture.setAttribute('height', Math.min(height, (height * (picture.clientWidth || 900)) / (columns * panelWidth)));
  picture.replaceChildren(...groups);
  if (!all.length) picture.append(shape('text', { x: panelWidth / 2, y: 34 }, 'there are no virtual devices'));
  byId('undrawn').textContent = undrawn ? `${some(undrawn, 'device')} with less traffic not drawn` : '';
}

// ---- lists ----------------------------------------------------------------------------------

const timeOf = (ms) => {
  const date = new Date(ms);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString() : date.toLocaleString();
};

function drawEvents(events) {
  const items = [...events].reverse().map((e) => {
    const item = element('li', refusals.has(e.type) ? 'refusal' : '');
    item.append(element('span', 'soft', timeOf(e.last)), element('b', '', types[e.type] ?? e.type));
    const whom = [];
    if (e.vdevice) whom.push(`${e.namespace}/${e.vdevice}`);
    if (e.tenant && !e.tenant.startsWith('vdev/')) whom.push(e.type === 'hook' ? e.tenant : `tenant ${e.tenant}`);
    if (e.who) whom.push(e.who);
    if (e.process) whom.push(`${e.program || 'process'} [${e.process}]`);
    if (whom.length) item.append(element('p', '', whom.join(', ')));
    const times = e.count > 1 ? ` (${e.count} times since ${timeOf(e.first)})` : '';
    item.append(element('p', 'soft', e.reason + times));
    return item;
  });
  byId('events').replaceChildren(...(items.length ? items : [element('li', 'empty', 'nothing so far')]));
}

function draw(state) {
  const seen = new Set();
  for (const tenant of state.tenants) remember(`tenant ${tenant.name}`, tenant.bytes + tenant.by_peers, state.seconds, seen);
  for (const v of state.vdevices) remember(`vdevice ${v.id}`, v.bytes + v.by_peers, state.seconds, seen);
  remember('all', state.bytes, state.seconds, seen);
  for (const key of history.keys()) if (!seen.has(key)) history.delete(key);

  document.title = `vrdma on ${state.host}`;
  byId('host').textContent = ` on ${state.host}`;
  byId('sums').textContent = `${some(state.all_tenants, 'tenant')}, ${some(state.all_vdevices, 'virtual device')}, ` +
    `${some(state.all_queue_pairs, 'queue pair')}, ${rate(state.bytes)}`;
  drawSpark(byId('minute'), 'all');
  drawPicture(state);
  drawEvents(state.events);
  byId('tenants').replaceChildren(...state.tenants.map((t) =>
    row(t.name, String(t.vdevices), rate(t.bytes), rate(t.by_peers), spark(`tenant ${t.name}`), bars(t.quota, 'no ceiling is set'))));
  byId('vdevices').replaceChildren(...state.vdevices.map((v) => {
    const device = element('span', '', v.name);
    device.title = `in ${v.namespace}, ${v.netdev}, ${v.address}`;
    const condition = element('span', v.state === 'ACTIVE' ? '' : 'bad', v.state.toLowerCase());
    condition.title = v.why;
    const refused = element('span', v.refused > 0 ? 'bad' : 'soft', v.refused > 0 ? number(v.refused) + '/s' : 'no');
    return row(device, v.tenant, v.who || '', condition, String(v.programs), String(v.queue_pairs),
      rate(v.bytes), rate(v.by_peers), refused, spark(`vdevice ${v.id}`), bars(v.quota, 'less than 1 % of each'));
  }));
  const unlisted = state.all_vdevices - state.vdevices.length;
  byId('unlisted').textContent = unlisted ? `${some(unlisted, 'device')} with less traffic not listed: vrdmactl vdev list` : '';
}

// ---- once a second --------------------------------------------------------------------------

function say(text, classes) {
  byId('status').textContent = text;
  byId('status').className = classes;
}

// Returns after how many milliseconds to ask again; 0: never.
async function update() {
  if (document.hidden) return 1000;
  let answer;
  try {
    answer = await fetch('/state', { headers: { Authorization: `Bearer ${token}` }, cache: 'no-store' });
  } catch {
    say('vrdmactl web does not answer any more: start it again, and open the address that it prints', 'bad');
    return 2000;
  }
  if (!answer.ok) {
    say(await answer.text(), 'bad');
    return answer.status === 401 ? 0 : 2000;
  }
  const state = await answer.json();
  if (state.error) {
    say(`no news: ${state.error}`, 'bad');
    return 1000;
  }
  draw(state);
  say('live', 'live');
  return 1000;
}

async function run() {
  for (;;) {
    const pause = await update();
    if (!pause) return;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

for (const transport of ['direct', 'mediated', 'network']) {
  const item = element('li', transport);
  item.append(element('b'), `${transport}: ${transports[transport]}`);
  byId('legend').append(item);
}
run();
