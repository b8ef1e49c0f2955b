// Programs that were compiled ahead of time to WebAssembly, called from JavaScript:
//
//   const models = await Models.load(bytes of models.wasm, text of models.h)
//   const [result, ..] = models.call("softmax", [x, ..])         Float32Arrays in, Float32Arrays out
//
// Sizes are those of the header. The module imports nothing and exports its memory; behind
// __heap_base none of it is the module's, so that arrays lie there, one after the other.

const PAGE = 65536, ALIGNMENT = 64;

export class Models {
  static async load(code, header) {
    const { instance } = await WebAssembly.instantiate(code, {});
    return new Models(instance.exports, header);
  }

  constructor(exports, header) {
    this.exports = exports;
    this.sizes = new Map([...header.matchAll(/^#define (\w+) (\d+)/gm)].map((m) => [m[1], Number(m[2])]));
  }

  call(name, inputs) {
    const size = (what) => this.sizes.get(`${name.toUpperCase()}_${what}`);
    const outputs = Array.from({ length: size("OUTPUTS") }, (_, k) => size(`OUTPUT_${k}_BYTES`));
    let end = this.exports.__heap_base.value;
    const place = (bytes) => {
      const start = Math.ceil(end / ALIGNMENT) * ALIGNMENT;
      end = start + bytes;
      return start;
    };
    const given = inputs.map((array, k) => {
      if (array.byteLength !== size(`INPUT_${k}_BYTES`)) {
        throw new RangeError(`${name}: input ${k} has ${array.byteLength} bytes`);
      }
      return place(array.byteLength);
    });
    const made = outputs.map(place);
    const arena = place(size("ARENA_BYTES")), table = place(4 * (given.length + made.length));
    const { memory } = this.exports;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    given.forEach((start, k) => new Float32Array(memory.buffer, start).set(inputs[k]));
    new Uint32Array(memory.buffer, table).set([...given, ...made]);
    const status = this.exports[name](table, table + 4 * given.length, arena);
    if (status !== 0) throw new Error(`${name}: status ${status}`);
    return made.map((start, k) => new Float32Array(memory.buffer, start, outputs[k] / 4).slice());
  }
}
