// EM for two objects, a and b, and two kernels: the page classroom/play, and nothing else.
//
// The first part is the mathematics. It needs no page, and is tested against the Python package.
// The second part draws it. No library is used, and nothing is fetched.
//
// A symmetric matrix is an array of its three numbers [aa, ab, bb]. A problem is
// { strength, kernels: [{ sees, nu, q }, ...] }: `sees` is "ab", "a" or "b", `q` the kernel's
// matrix, with zeros where it sees nothing.
(function (root) {
  "use strict";
  const LOG_2_PI = Math.log(2 * Math.PI);

  // ---- The mathematics ----------------------------------------------------------------------
  const determinant = (m) => m[0] * m[2] - m[1] * m[1];
  const isModel = (m) => m[0] > 0 && determinant(m) > 0; // positive definite

  // tr M^-1 S, with M^-1 = [bb, -ab, aa] / determinant.
  const traceOfRatio = (m, s) => (m[2] * s[0] - 2 * m[1] * s[1] + m[0] * s[2]) / determinant(m);

  // lambda + N.
  const weight = (problem) => problem.kernels.reduce((sum, k) => sum + k.nu, problem.strength);

  // One kernel, completed at the model m: what it sees stays, what it hides is expected.
  // Beside it the kernel's log-likelihood and the entropy of what it hides.
  function complete(kernel, m) {
    if (kernel.sees === "ab") {
      const fit = Math.log(determinant(m)) + traceOfRatio(m, kernel.q);
      return { moment: kernel.q, logLikelihood: -0.5 * (2 * LOG_2_PI + fit), entropy: 0 };
    }
    const seesA = kernel.sees === "a";
    const variance = seesA ? m[0] : m[2]; // of the object that it sees,
    const shown = seesA ? kernel.q[0] : kernel.q[2]; // and the kernel's entry for it
    const A = m[1] / variance; // regression of the hidden object on the visible one
    const C = (seesA ? m[2] : m[0]) - A * m[1]; // and the variance that it leaves
    const cross = shown * A;
    const hidden = C + A * A * shown;
    return {
      moment: seesA ? [shown, cross, hidden] : [hidden, cross, shown],
      logLikelihood: -0.5 * (LOG_2_PI + Math.log(variance) + shown / variance),
      entropy: 0.5 * (LOG_2_PI + 1 + Math.log(C)),
    };
  }

  // S + lambda T, T the identity: the kernels completed at m, and the prior's share.
  function statistic(problem, m) {
    const sum = [problem.strength, 0, problem.strength];
    for (const kernel of problem.kernels) {
      complete(kernel, m).moment.forEach((entry, i) => (sum[i] += kernel.nu * entry));
    }
    return sum;
  }

  // E-step and M-step: the next model.
  const emStep = (problem, m) => statistic(problem, m).map((entry) => entry / weight(problem));

  // The paper's start: zeros in the missing entries.
  function initialModel(problem) {
    const sum = [problem.strength, 0, problem.strength];
    for (const { nu, q } of problem.kernels) q.forEach((entry, i) => (sum[i] += nu * entry));
    return sum.map((entry) => entry / weight(problem));
  }

  // L(M), the penalized log-likelihood, in nats.
  function logLikelihood(problem, m) {
    if (!isModel(m)) return NaN;
    const logPrior = Math.log(determinant(m)) + traceOfRatio(m, [1, 0, 1]);
    return problem.kernels.reduce(
      (sum, kernel) => sum + kernel.nu * complete(kernel, m).logLikelihood,
      -0.5 * problem.strength * logPrior,
    );
  }

  // The Q-function plus the entropy: as a function of m a lower bound of L that touches it at `at`.
  // What it takes from `at` is computed once.
  function boundAt(problem, at) {
    const S = statistic(problem, at), total = weight(problem);
    const entropy = problem.kernels.reduce((sum, k) => sum + k.nu * complete(k, at).entropy, 0);
    const constant = entropy - (total - problem.strength) * LOG_2_PI;
    const value = (m) => constant - 0.5 * (total * Math.log(determinant(m)) + traceOfRatio(m, S));
    return (m) => (isModel(m) ? value(m) : NaN);
  }

  // The models that EM passes through: the start, and one more per step.
  function climb(problem, start, steps) {
    const models = [start];
    while (models.length <= steps) models.push(emStep(problem, models.at(-1)));
    return models;
  }

  // The page's two problems. `knob` is the one number of theirs that can be turned. `plane` gives
  // the model at a point (x, y) of the map: EM, started in this plane, never leaves it.
  const scenes = {
    // a is seen by both kernels, so M_aa is the same after every step.
    shared: {
      reach: [4, 5],
      start: { correlation: -0.63, variance: 3.6 },
      knob: { name: "Degrees of freedom ν₂ of kernel 2", from: -2, to: 5, at: 2, value: (k) => 2 ** k },
      kernels: (nu) => [{ sees: "ab", nu: 1, q: [2, 1, 2] }, { sees: "a", nu, q: [4, 0, 0] }],
      plane: (problem, x, y) => [initialModel(problem)[0], x, y],
    },
    // Nothing tells a from b, so M_aa = M_bb stays.
    apart: {
      reach: [8, 8],
      start: { correlation: 0.05, variance: 2 },
      knob: { name: "Variance q in both kernels", from: 1, to: 8, at: 5, value: (k) => k },
      kernels: (q) => [{ sees: "a", nu: 1, q: [q, 0, 0] }, { sees: "b", nu: 1, q: [0, 0, q] }],
      plane: (problem, x, y) => [y, x, y],
    },
  };

  const mathematics = { boundAt, climb, emStep, initialModel, logLikelihood, scenes };
  root.classroom = mathematics;
  if (typeof module === "object") module.exports = mathematics; // for the test in node
  if (typeof document === "undefined" || !document.getElementById("classroom")) return;

  // ---- The page -----------------------------------------------------------------------------
  const STEPS = 60;
  const BELOW = [0.01, 0.03, 0.1, 0.3, 1, 3, 10]; // contours, in nats below the highest point
  const COLUMNS = 160, ROWS = 120; // of the grid on which L is computed
  const page = document.getElementById("classroom");
  const part = (name) => page.querySelector(`[data-part="${name}"]`);
  const number = (name) => Number(part(name).value);
  const colour = (name) => getComputedStyle(page).getPropertyValue(`--${name}`);
  const upTo = (last, f) => Array.from({ length: last + 1 }, (_, i) => f(i));
  const signed = (x) => (x < 0 ? "−" : "") + Math.abs(x).toFixed(3);
  let scene, problem, models, levels; // what is shown
  const widest = (y) => Math.sqrt(determinant(scene.plane(problem, 0, y))); // |M_ab| is less

  // A canvas as sharp as the screen, and functions from the two axes to its pixels.
  function sheet(name, [left, right], [bottom, top]) {
    const canvas = part(name), pen = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    Object.assign(canvas, { width: width * scale, height: height * scale });
    pen.scale(scale, scale);
    Object.assign(pen, { font: "13px sans-serif", lineJoin: "round" });
    const px = (x) => ((x - left) / (right - left)) * width;
    const py = (y) => height - ((y - bottom) / (top - bottom)) * height;
    const line = (points, stroke, thick = 2, dash = []) => {
      pen.beginPath();
      points.forEach(([x, y]) => pen.lineTo(px(x), py(y)));
      pen.setLineDash(dash);
      Object.assign(pen, { strokeStyle: stroke, lineWidth: thick }).stroke();
      pen.setLineDash([]);
    };
    const dot = ([x, y], radius, fill, stroke) => {
      pen.beginPath();
      pen.arc(px(x), py(y), radius, 0, 2 * Math.PI);
      Object.assign(pen, { fillStyle: fill, strokeStyle: stroke, lineWidth: 2 }).fill();
      pen.stroke();
    };
    const text = (words, x, y, align = "left") => {
      const look = { fillStyle: colour("ink"), strokeStyle: colour("paper"), lineWidth: 5 };
      Object.assign(pen, look, { textAlign: align });
      const inside = (place, least, most) => Math.min(Math.max(place, least), most);
      const place = [inside(px(x), 4, width - 4), inside(py(y), 14, height - 6)];
      for (const draw of ["strokeText", "fillText"]) pen[draw](words, ...place);
    };
    return { pen, px, py, line, dot, text };
  }

  // Where f, known at the corners of a grid, passes through a level: a line across each cell.
  function contour({ pen, px, py }, grid, level, stroke, thick) {
    pen.beginPath();
    for (let i = 0; i < COLUMNS; i++) {
      for (let j = 0; j < ROWS; j++) {
        const corners = [grid[i][j], grid[i + 1][j], grid[i + 1][j + 1], grid[i][j + 1]], crossings = [];
        corners.forEach((one, k) => {
          const next = corners[(k + 1) % 4];
          if (Number.isNaN(one.f + next.f) || one.f < level === next.f < level) return;
          const share = (level - one.f) / (next.f - one.f);
          crossings.push([one.x + share * (next.x - one.x), one.y + share * (next.y - one.y)]);
        });
        crossings.forEach(([x, y], k) => pen[k % 2 ? "lineTo" : "moveTo"](px(x), py(y)));
      }
    }
    Object.assign(pen, { strokeStyle: stroke, lineWidth: thick }).stroke();
  }

  function gridOf(f) {
    const [reach, top] = scene.reach;
    return upTo(COLUMNS, (i) => upTo(ROWS, (j) => {
      const x = reach * ((2 * i) / COLUMNS - 1), y = (top * j) / ROWS;
      return { x, y, f: f(scene.plane(problem, x, y)) };
    }));
  }

  // The map: lines of equal L, the path, and where the bound promises more than L is now.
  function drawMap(step) {
    const [reach, top] = scene.reach, map = sheet("map", [-reach, reach], [0, top]);
    const heights = gridOf((m) => logLikelihood(problem, m));
    const highest = heights.flat().reduce((most, { f }) => (f > most ? f : most), -Infinity);
    for (const below of BELOW) contour(map, heights, highest - below, colour("contour"), 1.2);
    const edge = upTo(200, (i) => [widest((top * i) / 200), (top * i) / 200]);
    for (const side of [-1, 1]) map.line(edge.map(([x, y]) => [side * x, y]), colour("ink"), 3);
    contour(map, gridOf(boundAt(problem, models[step])), levels[step], colour("bound"), 2);
    const path = models.map(([, x, y]) => [x, y]), em = colour("em");
    map.line(path, em);
    path.forEach((point) => map.dot(point, 2.5, em, em));
    map.dot(path[0], 6, colour("paper"), em);
    map.dot(path[step], 6, em, colour("ink"));
    map.text("M_ab →", reach, 0, "right");
    map.text("↑ " + (scene === scenes.shared ? "M_bb" : "M_aa = M_bb"), -reach, top);
    for (let x = -reach + 2; x < reach - 2; x += 2) map.text(`${x}`.replace("-", "−"), x, 0, "center");
    for (let y = 2; y < top; y += 2) map.text(`${y}`, -reach, y);
  }

  // L and the bound along the line through the current model and the next.
  function drawSection(step) {
    const now = models[step], next = models[step + 1], bound = boundAt(problem, now);
    const at = (s) => now.map((entry, i) => entry + s * (next[i] - entry));
    const level = levels[step], gain = levels[step + 1] - level, unit = Math.max(gain, 1e-9);
    const section = sheet("section", [-0.8, 2], [level - 1.2 * unit, level + 1.5 * unit]);
    if (gain < unit) return section.text("This step is too small to draw.", -0.7, level);
    const curve = (f) => upTo(280, (i) => [i / 100 - 0.8, f(at(i / 100 - 0.8))])
      .filter(([, y]) => y > level - 4 * gain);
    section.line(curve((m) => logLikelihood(problem, m)), colour("ink"));
    section.line(curve(bound), colour("bound"), 2, [6, 4]);
    section.line([[1, bound(next)], [1, level + gain]], colour("em"));
    section.dot([0, level], 6, colour("em"), colour("ink"));
    section.dot([1, bound(next)], 4, colour("bound"), colour("bound"));
    section.dot([1, level + gain], 5, colour("paper"), colour("em"));
    section.text(`model ${step}`, 0, level - 1.15 * gain, "center");
    section.text(`model ${step + 1}`, 1, level - 1.15 * gain, "center");
    section.text(`the step to model ${step + 1} gains ${gain.toPrecision(3)} nats`, -0.78, level + 1.4 * gain);
  }

  function fillTable(step) {
    part("rows").replaceChildren(...models.map(([, x, y], i) => {
      const row = document.createElement("tr");
      const gain = i ? (levels[i] - levels[i - 1]).toExponential(2).replaceAll("-", "−") : "";
      row.className = i === step ? "current" : "";
      for (const words of [i, signed(x), signed(y), levels[i].toFixed(6).replace("-", "−"), gain]) {
        row.append(Object.assign(document.createElement("td"), { textContent: words }));
      }
      return row;
    }));
  }

  // Read the controls, climb, and show it all.
  function show() {
    scene = scenes[part("scene").value];
    const strength = 10 ** number("strength"), knob = scene.knob.value(number("knob"));
    problem = { strength, kernels: scene.kernels(knob) };
    const variance = number("variance"), step = number("step");
    const start = scene.plane(problem, number("correlation") * widest(variance), variance);
    models = climb(problem, start, STEPS);
    levels = models.map((m) => logLikelihood(problem, m));
    for (const [name, words] of Object.entries({
      correlation: signed(number("correlation")), variance: signed(variance),
      strength: strength.toPrecision(3), knob: knob.toPrecision(3), step: `${step}`,
    })) part(`${name}-value`).textContent = words;
    part("knob-name").textContent = scene.knob.name;
    drawMap(step);
    drawSection(step);
    fillTable(step);
    // A step that gains nothing any more may seem to fall, by rounding: some 1e-13 nats.
    const rose = levels.every((level, i) => !i || level >= levels[i - 1] - 1e-12);
    const [, x, y] = models[STEPS], [, was, wasOver] = models[STEPS - 1];
    const moved = Math.max(Math.abs(x - was), Math.abs(y - wasOver)); // gains vanish first: L is flat
    const rest = moved > 1e-4 ? ` Not there yet: the last step moved it by ${moved.toPrecision(2)}.` : "";
    part("summary").textContent =
      `${STEPS} steps: L from ${signed(levels[0])} to ${signed(levels[STEPS])} nats, ` +
      `${rose ? "no step fell" : "A STEP FELL"}. Last model: M_ab ${signed(x)}, M_bb ${signed(y)}.${rest}`;
  }

  // Put the start at a model of the plane, as far as the sliders go.
  function startAt([aa, ab, bb]) {
    part("variance").value = bb;
    part("correlation").value = ab / Math.sqrt(aa * bb);
    part("step").value = 0;
    show();
  }

  // What belongs to a problem: the knob, the start, and how far the variance goes.
  function chooseScene() {
    const { knob, reach, start } = scenes[part("scene").value];
    Object.assign(part("knob"), { min: knob.from, max: knob.to, value: knob.at });
    part("variance").max = reach[1];
    for (const [name, value] of Object.entries(start)) part(name).value = value;
    Object.assign(part("step"), { max: STEPS - 1, value: 0 });
    show();
  }

  function point(event) {
    const box = event.target.getBoundingClientRect(), [reach, top] = scene.reach;
    const x = reach * ((2 * (event.clientX - box.left)) / box.width - 1);
    const model = scene.plane(problem, x, top * (1 - (event.clientY - box.top) / box.height));
    if (isModel(model)) startAt(model);
  }

  page.addEventListener("input", (event) => (event.target === part("scene") ? chooseScene() : show()));
  part("paper").addEventListener("click", () => startAt(initialModel(problem)));
  part("map").addEventListener("click", point);
  part("map").addEventListener("mousemove", (event) => event.buttons === 1 && point(event));
  window.addEventListener("resize", show);
  const theme = { attributeFilter: ["data-theme"] }; // with it change the colours
  new MutationObserver(show).observe(document.documentElement, theme);
  chooseScene();
})(globalThis);
