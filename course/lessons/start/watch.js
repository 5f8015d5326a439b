// One launch of two ranks on one time axis, and a stopwatch whose start and stop can be dragged.
// Times are in ms, and invented: a real launch is drawn further down, where some are too short to see.

const END = 120, LEFT = 58, ROW = 44, TOP = 38;
const LANES = ["launch", "rank 0", "rank 1"];
const BARS = [ // lane, begin, end, kind, label
  [0, 0, 120, "job", "launch(...)"],
  [1, 30, 48, "call", "1st"], [2, 30, 48, "call", "1st"],
  [1, 54, 62, "call", "2nd"], [2, 54, 62, "call", "2nd"],
  [1, 68, 90, "call", "3rd"], [2, 68, 84, "late", "busy"], [2, 84, 90, "call", ""],
  [1, 98, 104, "call", "4th"], [2, 98, 104, "call", "4th"],
];
const FILL = { job: "#b8c4cc", call: GREEN, late: PINK };
const is = (from, to) => ({ start, stop }) => Math.abs(start - from) <= 1 && Math.abs(stop - to) <= 1;

export default define({
  title: "One launch, one stopwatch",
  start: () => ({ start: 10, stop: 20 }),
  goals: [
    { text: "Dan times the whole launch. Drag both ends of the stopwatch (or Tab, then the arrow keys).", met: is(0, 120), after: "120 ms: starting the ranks is in it." },
    { text: "Ada times the ranks' first call.", met: is(30, 48), after: "18 ms: a first call also pays for what later ones find ready. (gloo connects the ranks before, when it makes the group; NCCL in the first call.)" },
    { text: "Ben starts the second call, and reads his clock at once.", met: ({ start, stop }) => start === stop && Math.abs(start - 54) <= 1, after: "0 ms: the sum was still under way." },
    { text: "Cleo times the third call, on rank 0.", met: is(68, 90), after: "22 ms: 16 of them wait for rank 1." },
    { text: "Eve times one call that both ranks begin warm, together, and that she awaits.", met: is(98, 104), after: "6 ms: what a call takes." },
  ],
  height: () => TOP + ROW * LANES.length + 34,

  draw(state, pen, width) {
    const scale = (width - LEFT - 14) / END, x = (ms) => LEFT + scale * ms, bottom = TOP + ROW * LANES.length;
    const { start, stop } = state;
    pen.put("run", "rect", { x: x(start), y: TOP, width: scale * (stop - start), height: bottom - TOP + 10, fill: YELLOW, opacity: 0.35 });
    LANES.forEach((name, lane) => pen.text(`lane ${name}`, 2, TOP + ROW * lane + 26, name));
    BARS.forEach(([lane, begin, end, kind, label], i) => {
      pen.put(`bar ${i}`, "rect", { x: x(begin), y: TOP + ROW * lane + 8, width: scale * (end - begin), height: 28, fill: FILL[kind], stroke: "#222", "stroke-width": 0.8, rx: 2 });
      if (scale * (end - begin) > 7 * label.length) pen.text(`label ${i}`, x((begin + end) / 2), TOP + ROW * lane + 26, label, { "text-anchor": "middle", "font-size": 12, fill: "#222" });
    });
    for (let ms = 0; ms <= END; ms += 40) pen.text(`tick ${ms}`, x(ms), bottom + 26, ms === END ? `${ms} ms` : ms, { "text-anchor": ms === END ? "end" : "middle", "font-size": 11 });
    pen.put("axis", "path", { d: `M${x(0)} ${bottom + 10}H${x(END)}`, stroke: SOFT });
    const middle = clamp(x((start + stop) / 2), 60, width - 60);
    pen.put("watch", "g", { transform: `translate(${middle - 34} 9)` }, stopwatch(stop - start, RED));
    pen.text("shows", middle - 18, 15, `${stop - start} ms`, { "font-size": 17, "font-weight": "bold" });
    const end = (name, value, min, max, side) => pen.handle(name, { transform: `translate(${x(value)} ${TOP})` },
      `<rect x="${side < 0 ? -22 : -2}" y="-14" width="24" height="${bottom - TOP + 24}" fill="transparent"/><path d="M0 -12V${bottom - TOP + 10}" stroke="${RED}" stroke-width="2.5"/><path d="M0 -14h${side * 14}v12h${side * -14}z" fill="${RED}"/>`, {
        label: `the stopwatch's ${name}`, words: `${value} ms`, value, min, max, page: 10, zero: LEFT, scale, set(ms) { state[name] = ms; },
      });
    end("start", start, 0, stop, -1);
    end("stop", stop, start, END, 1);
  },

  words: ({ start, stop }) => `The stopwatch starts at ${start} ms and stops at ${stop}: it shows ${stop - start} ms. ${BARS.slice(1).filter(([, , , , label]) => label).map(([lane, begin, end, , label]) => `${LANES[lane]}, ${label}: ${begin} to ${end}`).join("; ")}.`,
});
