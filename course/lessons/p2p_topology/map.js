// The puzzle's server: which GPU has how many NVLinks to which, and a way from 0 to 2 that is chosen
// by its relays. Each link has one rate, and nobody else uses it: that is the toy's theory. A test
// holds `run` against `flows.ways_time`.

const LINKS = ["X4--22-4", "4X--422-", "--X4-422", "--4X2-42", "24-2X4--", "224-4X--", "-224--X4", "4-22--4X"];
const NVLINK = 93.3 / 4, SYS = 7.5, MEGABYTES = 400, DIRECT = MEGABYTES / SYS, SRC = 0, DST = 2, RELAYS = [1, 3, 4, 5, 6, 7], BAR = 24;
const count = (a, b) => Number(LINKS[a][b]) || 0;
const rate = (a, b) => count(a, b) * NVLINK || SYS; // GB/s, or MB a ms
const fresh = () => ({ relays: [], chunks: false, now: Infinity });

/** When each hop begins and ends, in ms: the bytes are divided so that all ways end together. */
function run({ relays, chunks }) {
  const ways = relays.length ? relays.map((relay) => [SRC, relay, DST]) : [[SRC, DST]];
  const plans = ways.map((way) => {
    const turns = way.slice(1).map((gpu, i) => 1 / rate(way[i], gpu)); // ms for a MB
    return { way, turns, each: chunks ? Math.max(...turns) : turns.reduce((a, b) => a + b) };
  });
  const total = MEGABYTES / plans.reduce((sum, { each }) => sum + 1 / each, 0);
  const hops = plans.flatMap(({ way, turns, each }, number) => {
    let begin = 0;
    return turns.map((turn, i) => {
      const hop = { src: way[i], dst: way[i + 1], number, begin, busy: (turn * total) / each, end: chunks ? total : begin + (turn * total) / each };
      if (!chunks) begin = hop.end;
      return hop;
    });
  });
  return { hops, total };
}

const send = (act, state) => {
  const { total } = run(state);
  act.move(clamp(total / 12, 0.8, 4), (share) => { state.now = share < 1 ? share * total : Infinity; });
};
const LOOKS = { 4: [BLUE, 5, ""], 2: [GREEN, 2.6, "8 3"], 0: [SOFT, 1, "2 4"] };

export default define({
  title: "A server's eight GPUs: bring 400 MB from GPU 0 to GPU 2",
  start: fresh,
  goals: [
    { text: "Directly it takes 53.3 ms. Choose a relay (below, or click a GPU), or several, and beat that. Press a button again to leave a relay out.",
      met: (state) => state.relays.length > 0 && run(state).total < DIRECT - 0.1, after: "Two fast hops beat a slow one." },
    { text: "Cut the bytes into chunks, and have the last one there in less than 9 ms.",
      met: (state) => state.relays.length > 0 && state.chunks && run(state).total < 9, after: "In chunks both hops work at once, and the slower one decides." },
    { text: "Now in less than 5 ms. Two relays are enough: which two?",
      met: (state) => state.relays.length > 1 && run(state).total < 5, after: "These ways share no link, so their rates add up. And the rule: in one piece the times of the hops add up; in chunks a way is as fast as its slowest hop." },
  ],
  height: (state, width) => Math.min(width, 400) + 66 + BAR * run(state).hops.length,

  draw(state, pen, width) {
    const size = Math.min(width, 400), middle = width / 2, { hops, total } = run(state), now = Math.min(state.now, total);
    const place = (gpu) => {
      const angle = Math.PI / 2 - (gpu * Math.PI) / 4;
      return [middle + (size / 2 - 26) * Math.cos(angle), size / 2 - (size / 2 - 26) * Math.sin(angle)];
    };
    for (const kind of [0, 2, 4]) LINKS.forEach((_, a) => LINKS.forEach((__, b) => {
      if (a >= b || count(a, b) !== kind) return;
      const [color, thick, dash] = LOOKS[kind], [x, y] = place(a), [u, v] = place(b);
      const used = hops.some(({ src, dst }) => [src, dst].includes(a) && [src, dst].includes(b));
      pen.put(`link ${a} ${b}`, "path", { d: `M${x} ${y}L${u} ${v}`, stroke: color, "stroke-width": thick, "stroke-dasharray": dash, opacity: used ? 1 : 0.3 });
    }));
    hops.forEach(({ src, dst, begin, end }) => {
      const [x, y] = place(src), [u, v] = place(dst), off = (24 / Math.hypot(u - x, v - y));
      const at = (share) => [x + (u - x) * share, y + (v - y) * share];
      const [p, q] = [at(off), at(1 - off)];
      pen.put(`hop ${src} ${dst}`, "path", { d: `M${p}L${q}`, stroke: ORANGE, "stroke-width": 3, "marker-end": "url(#toy-arrow)" });
      if (state.now === Infinity || now <= begin || now > end) return;
      for (let i = 0; i < 5; i++) {
        const [cx, cy] = at(((now - begin) / (end - begin) * (state.chunks ? 6 : 1) + (state.chunks ? i / 5 : i / 30)) % 1);
        pen.put(`byte ${src} ${dst} ${i}`, "circle", { cx, cy, r: 5, fill: RED });
      }
    });
    LINKS.forEach((_, gpu) => {
      const [x, y] = place(gpu), end = gpu === SRC || gpu === DST, chosen = state.relays.includes(gpu);
      const part = pen.put(`GPU ${gpu}`, "g", { transform: `translate(${x} ${y})`, style: end ? "" : "cursor: pointer" },
        `<circle r="19" fill="${chosen ? ORANGE : end ? YELLOW : "#fff"}" stroke="#222" stroke-width="1.5"/><text y="5" text-anchor="middle" font-weight="bold" fill="#222">${gpu}</text>`);
      part.onclick = end ? null : () => part.closest(".course-toy").querySelectorAll("button")[RELAYS.indexOf(gpu)].click();
    });
    let x = 4;
    for (const [kind, words] of [[4, "4 NVLinks"], [2, "2 NVLinks"], [0, "SYS"]]) {
      const [color, thick, dash] = LOOKS[kind];
      pen.put(`key ${kind}`, "path", { d: `M${x} ${size + 14}h26`, stroke: color, "stroke-width": thick, "stroke-dasharray": dash });
      pen.text(`key's words ${kind}`, x + 31, size + 18, words, { "font-size": 12 });
      x += 112;
    }
    const left = 58, scale = (width - left - 70) / Math.max(DIRECT, total), top = size + 34;
    hops.forEach(({ src, dst, begin, end, busy }, i) => {
      const y = top + BAR * i;
      pen.text(`lane ${i}`, 4, y + 14, `${src} → ${dst}`);
      pen.put(`bar ${i}`, "rect", { x: left + scale * begin, y, width: Math.max(0, scale * (Math.min(end, now) - begin)), height: BAR - 6, fill: ORANGE, opacity: 0.3 + (0.7 * busy) / (end - begin) });
      pen.text(`end ${i}`, left + scale * end + 5, y + 14, now < end ? "" : `${end.toFixed(1)} ms`, { "font-size": 12 });
    });
    pen.put("direct", "path", { d: `M${left + scale * DIRECT} ${top - 4}v${BAR * hops.length + 4}`, stroke: SOFT, "stroke-dasharray": "3 3" });
    pen.text("total", 4, top + BAR * hops.length + 16, `The last byte arrives after ${total.toFixed(1)} ms.`, { "font-weight": "bold" });
  },

  words(state) {
    const { hops, total } = run(state), how = state.chunks ? "in chunks" : "in one piece";
    const told = hops.map(({ src, dst, begin, end }) => `${src} to ${dst} from ${begin.toFixed(1)} to ${end.toFixed(1)} ms`).join("; ");
    return `400 MB ${how}: ${told}. The last byte arrives after ${total.toFixed(1)} ms.`;
  },
  buttons: ({ relays, chunks }) => [
    ...RELAYS.map((relay) => ({ label: `over ${relay}`, pressed: relays.includes(relay), press: (act, state) => {
      act.change(() => { state.relays = relays.includes(relay) ? relays.filter((one) => one !== relay) : [...relays, relay].sort(); });
      send(act, state);
    } })),
    { label: "in chunks", pressed: chunks, press: (act, state) => { act.change(() => { state.chunks = !chunks; }); send(act, state); } },
    { label: "▶ Send again", press: send },
    { label: "↺ Directly", press: (act, state) => act.change(() => Object.assign(state, fresh())) },
  ],
});
