// A shopping basket. `total` lacks the body of its callback.

export class Basket {
  #lines = [];

  add(name, price, count = 1) {
    this.#lines.push({ name, price, count });
  }

  get count() {
    return this.#lines.reduce((sum, line) => sum + line.count, 0);
  }

  get total() {
    return this.#lines.reduce((sum, line) => , 0);
  }
}
