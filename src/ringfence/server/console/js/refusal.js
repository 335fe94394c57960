// A violation in one sentence: what was refused, by which rule, and what would allow it.

export function refusal({ what, rule, place, allow_by: remedy, count }) {
  const times = count > 1 ? ` (${count} times)` : "";
  const where = place && place !== "built-in" ? `${rule}, ${place}` : rule;
  return `${what}${times} [rule: ${where}]${remedy ? `; to allow it: ${remedy}` : ""}`;
}
