// Twelve parcels for rank 1: packed into boxes, sent one box a trip, unpacked. How many boxes?
// Times are in ms, and the prices are invented.

const PARCELS = 12, PACK = 1, FLY = 2, MAKE = 1, STOCK = 4, MOST = 12, LEFT = 66, ROW = 34, TOP = 12;
const LANES = ["rank 0", "wire", "rank 1"];
const LOOK = { make: PINK, pack: ORANGE, fly: BLUE, unpack: GREEN };
const KEY = [["make", "makes a large box"], ["pack", "packs"], ["fly", "a trip"], ["unpack", "unpacks"]];

/** What happens when: lane, kind, begin, end. The next box is packed while one is on its way. */
function course({ boxes, kept, trip }) {
  const bars = [];
  let packed = 0, arrived = 0, done = 0;
  for (let box = 0; box < boxes; box++) {
    const size = Math.floor((PARCELS * (box + 1)) / boxes) - Math.floor((PARCELS * box) / boxes);
    const made = packed + (size > STOCK && !kept ? MAKE * size : 0), leaves = made + PACK * size;
    const flies = Math.max(leaves, arrived), lands = flies + trip + FLY * size, opens = Math.max(lands, done);
    bars.push([0, "make", packed, made], [0, "pack", made, leaves], [1, "fly", flies, lands], [2, "unpack", opens, opens + PACK * size]);
    [packed, arrived, done] = [leaves, lands, opens + PACK * size];
  }
  return { bars, end: done };
}

const name = (boxes, kept) => `${kept ? "kept" : "new"} ${boxes}`;
const took = (state, boxes, kept) => state.tries[name(boxes, kept)];
const all = Array.from({ length: PARCELS }, (_, i) => i + 1);
const cheapest = ({ trip }) => Math.min(...all.map((boxes) => course({ boxes, trip, kept: false }).end));
const ratio = (state, kept) => took(state, 12, kept) / took(state, 1, kept);
const sends = (sent) => ({ sent, now: Infinity, tries: { [name(sent.boxes, sent.kept)]: course(sent).end } });

function send(act, state) {
  const { boxes, kept, trip } = state, sent = { boxes, kept, trip }, { end } = course(sent);
  act.move(2, (share) => {
    Object.assign(state, { sent, now: share < 1 ? share * end : Infinity });
    if (share === 1) state.tries[name(boxes, kept)] = end;
  });
}

export default define({
  title: "Twelve parcels, how many boxes?",
  start: () => ({ boxes: 12, kept: false, trip: 3, ...sends({ boxes: 12, kept: false, trip: 3 }) }),
  goals: [
    {
      text: "One by one the parcels take 62 ms. Let them arrive as early as they can: drag the number of boxes (or Tab, then the arrow keys), and send.",
      met: (state) => state.trip > 0 && all.some((boxes) => took(state, boxes, false) === cheapest(state)),
      after: "Fewer boxes save trips, but while the first box is packed nothing flies.",
    },
    {
      text: "A box for more than four parcels has to be made. Keep the boxes, so that they are there next time. Which number of boxes gains most? Send it both ways.",
      met: (state) => took(state, 1, false) - took(state, 1, true) > 0,
      after: "One box gains 12 ms: so much the making cost, for nothing else has changed. Kept it takes 51 ms, and three boxes take 41: the other 10 ms have another reason. Nothing flies while one box is packed.",
    },
    {
      text: "The author of our next case saw one box 1.6 times as fast as one by one. Set the price of a trip so that it is so here.",
      met: (state) => [false, true].some((kept) => ratio(state, kept) > 1.6 && ratio(state, kept) < 1.66),
      after: "With kept boxes it takes a price of 5, with new ones 7. The 1.6 alone does not say which: no total says which price made it. And which number of boxes is best depends on the prices: where a trip costs nothing it is twelve; where it costs 12 ms, and boxes are kept, one or two.",
    },
  ],
  height: () => TOP + 3 * ROW + 274,

  draw(state, pen, width) {
    const { bars, end } = state.sent ? course(state.sent) : { bars: [], end: 0 };
    const scale = (width - LEFT - 12) / Math.max(80, end), x = (ms) => LEFT + scale * ms, under = TOP + 3 * ROW;
    LANES.forEach((lane, row) => pen.text(`lane ${row}`, 2, TOP + ROW * row + 21, lane));
    bars.forEach(([row, kind, begin, until], i) => {
      const seen = Math.min(until, state.now);
      if (seen > begin) pen.put(`bar ${i}`, "rect", { x: x(begin), y: TOP + ROW * row + 5, width: scale * (seen - begin), height: ROW - 10, fill: LOOK[kind], stroke: "#222", "stroke-width": 0.7 });
    });
    pen.put("axis", "path", { d: `M${LEFT} ${under + 2}H${width - 12}`, stroke: SOFT });
    for (let ms = 0; ms <= 60; ms += 20) pen.text(`tick ${ms}`, x(ms), under + 17, ms === 60 ? "60 ms" : ms, { "text-anchor": "middle", "font-size": 11 });
    KEY.forEach(([kind, words], i) => {
      const narrow = width < 330, at = 18 + (narrow ? [0, 0, 60, 120] : [0, 146, 200, 254])[i], low = narrow && i ? 16 : 0;
      pen.put(`key ${kind}`, "rect", { x: at - 14, y: under + 26 + low, width: 11, height: 11, fill: LOOK[kind], stroke: "#222", "stroke-width": 0.7 });
      pen.text(`key's name ${kind}`, at, under + 36 + low, words, { "font-size": 12 });
    });
    const floor = under + 182, column = (width - LEFT - 12) / PARCELS, middle = (boxes) => LEFT + column * (boxes - 0.5);
    const tallest = Math.max(80, ...Object.values(state.tries));
    pen.text("tried", 2, under + 76, "tried:", { "font-size": 12 });
    pen.text("tried new", 2, under + 92, "new", { "font-size": 12, fill: RED });
    pen.text("tried kept", 2, under + 108, "kept", { "font-size": 12, fill: BLUE });
    all.forEach((boxes) => [false, true].forEach((kept) => {
      const ms = took(state, boxes, kept), high = (110 * ms) / tallest, at = middle(boxes) + (kept ? 0 : -column * 0.47);
      if (ms === undefined) return;
      pen.put(`try ${name(boxes, kept)}`, "rect", { x: at, y: floor - high, width: column * 0.46, height: high, fill: kept ? BLUE : RED });
      pen.text(`ms ${name(boxes, kept)}`, at + column * 0.23, floor - high + (kept ? 12 : -4), ms, { "text-anchor": "middle", "font-size": 11, fill: kept ? "#fff" : INK });
    }));
    const rule = (key, y, words, shown, how) => {
      pen.put(`${key} line`, "path", { d: `M${how.zero + how.scale * how.min} ${y}H${how.zero + how.scale * how.max}`, stroke: SOFT, "stroke-width": 2 });
      pen.text(`${key} words`, 2, y + 4, words);
      pen.handle(key, { transform: `translate(${how.zero + how.scale * how.value} ${y})` },
        `<circle r="17" fill="transparent"/><circle r="12" fill="${YELLOW}" stroke="#222" stroke-width="1.5"/><text y="4" text-anchor="middle" font-size="11" font-weight="bold" fill="#222">${shown}</text>`, how);
    };
    rule("boxes", floor + 22, "boxes", state.boxes, {
      label: "number of boxes", words: String(state.boxes), value: state.boxes, min: 1, max: PARCELS, page: 3, zero: LEFT - column / 2, scale: column,
      set(value) { state.boxes = value; },
    });
    rule("trip", floor + 62, "a trip", state.trip, {
      label: "price of a trip", words: `${state.trip} ms`, value: state.trip, min: 0, max: MOST, page: 3, zero: LEFT + 12, scale: (width - LEFT - 36) / MOST,
      set(value) { Object.assign(state, { trip: value, tries: {}, sent: null }); },
    });
  },

  words(state) {
    const tried = Object.entries(state.tries).map(([what, ms]) => `${what}: ${ms} ms`);
    const boxes = state.boxes === 1 ? "1 box" : `${state.boxes} boxes`;
    return `${boxes}, ${state.kept ? "kept" : "new"}; a trip costs ${state.trip} ms. Tried, by the number of boxes: ${tried.join("; ") || "nothing yet"}.`;
  },
  buttons: (state) => [
    { label: "▶ Send", press: send },
    { label: "Keep the boxes", pressed: state.kept, press: (act) => act.change(() => { state.kept = !state.kept; }) },
  ],
});
