/** Text laid over rows that are there already, for an editor that can draw in a row but not between two. */

const LINE_END = " ⏎ ";
const NO_BREAK = "\u00a0"; // leading spaces would not be drawn

/** `text` in exactly `count` rows: what is too much goes into the last one, what is missing is empty. */
export function laidOver(text: string, count: number): string[] {
  const lines = text.split(/\r\n|\r|\n/).map((line) => line.replaceAll("\t", "    ").replaceAll(" ", NO_BREAK));
  const kept = lines.slice(0, count - 1);
  const rest = lines.slice(count - 1).map((line, index) => (index === 0 ? line : line.trimStart()));
  return Array.from({ length: count }, (_, index) => (index < count - 1 ? (kept[index] ?? "") : rest.join(LINE_END)));
}
