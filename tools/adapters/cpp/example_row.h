// One row of the example's caches: the slots in which the K and V of its tokens lie.
//
// Linear layouts keep every token, in order. A ring of W slots keeps its first tokens in place, and
// overwrites the oldest of the others, one token at a time: then the slots are no longer in the
// order of the tokens. Several tokens at once are appended in order behind what their queries still
// see, so that a row may have up to W - 1 + N slots until the next append.

#ifndef KVCHECK_EXAMPLE_ROW_H_
#define KVCHECK_EXAMPLE_ROW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

// What all rows of a cache have in common.
struct RowShape {
  int64_t window = 0;  // tokens; 0: none
  int64_t keep = 0;
  bool is_ring = false;
  int64_t k_bytes = 0, v_bytes = 0;  // of one token, all heads
  int64_t growth_tokens = 8;
};

struct Row {
  std::vector<std::byte> k, v;  // as many slots as capacity says, (slot, head, channel)
  int64_t capacity = 0;         // slots
  int64_t slots = 0;            // that hold tokens
  int64_t next = 0;             // of a ring with all of its slots: the oldest of those not kept
  int64_t offset = 0;           // tokens seen
  int64_t unfed = 0;            // columns of left padding still to come
  int64_t to_come = 0;          // tokens of a prepared prefill that have not arrived
  int64_t first_query = 0, query_tokens = 0;  // of the last append: the columns that are tokens

  int64_t Kept(const RowShape& shape) const { return std::min(shape.keep, slots); }
  // The position of the oldest token that is not one of the kept ones.
  int64_t FirstPosition(const RowShape& shape) const { return offset - (slots - Kept(shape)); }

  // The slots that hold tokens, by position: the kept ones, then from FirstPosition on.
  std::vector<int64_t> Order(const RowShape& shape) const {
    std::vector<int64_t> order;
    const int64_t kept = Kept(shape), oldest = std::clamp(next, kept, slots);
    for (int64_t slot = 0; slot < kept; ++slot) order.push_back(slot);
    for (int64_t slot = oldest; slot < slots; ++slot) order.push_back(slot);
    for (int64_t slot = kept; slot < oldest; ++slot) order.push_back(slot);
    return order;
  }
  int64_t PositionOf(const RowShape& shape, size_t in_order) const {
    const auto i = static_cast<int64_t>(in_order);
    return i < Kept(shape) ? i : FirstPosition(shape) + i - Kept(shape);
  }

  // Slots in the order of the tokens.
  void Straighten(const RowShape& shape) {
    if (next != shape.keep) {
      const std::vector<std::byte> old_k = k, old_v = v;
      const std::vector<int64_t> order = Order(shape);
      for (size_t i = 0; i < order.size(); ++i) {
        Copy(shape.k_bytes, old_k, order[i], &k, static_cast<int64_t>(i));
        Copy(shape.v_bytes, old_v, order[i], &v, static_cast<int64_t>(i));
      }
    }
    next = shape.keep;
  }

  // Makes room for tokens behind those that are there; gives the slot of each.
  std::vector<int64_t> Add(const RowShape& shape, int64_t tokens) {
    offset += tokens;
    if (shape.is_ring && tokens == 1 && slots == shape.window) {
      const int64_t slot = next;
      next = next + 1 == slots ? shape.keep : next + 1;
      return {slot};
    }
    if (shape.is_ring && slots >= shape.window) {
      Straighten(shape);
      const int64_t gone = slots - (shape.window - 1);
      EraseSlots(shape, shape.keep, gone);
    }
    std::vector<int64_t> added;
    for (int64_t i = 0; i < tokens; ++i) added.push_back(slots++);
    if (slots > capacity) {
      const int64_t step = std::max<int64_t>(1, shape.growth_tokens);
      Resize(shape, (slots + step - 1) / step * step);
    }
    return added;
  }

  // Whether its newest tokens can go so that `left` remain, as if they had never been.
  bool CanReturnTo(const RowShape& shape, int64_t left) const {
    if (left > offset) return false;
    if (!shape.is_ring || left == 0) return true;
    const int64_t needed = std::max(shape.keep, left - (shape.window - shape.keep - 1));
    return needed >= left || needed >= FirstPosition(shape);
  }
  void ReturnTo(const RowShape& shape, int64_t left) {
    Straighten(shape);
    const int64_t others = std::max<int64_t>(0, left - FirstPosition(shape));
    slots = std::min(Kept(shape), left) + others;
    offset = left;
  }

  void Shrink(const RowShape& shape) { Resize(shape, slots); }

 private:
  static void Copy(int64_t bytes, const std::vector<std::byte>& from, int64_t from_slot,
                   std::vector<std::byte>* to, int64_t to_slot) {
    std::memcpy(to->data() + to_slot * bytes, from.data() + from_slot * bytes,
                static_cast<size_t>(bytes));
  }
  void EraseSlots(const RowShape& shape, int64_t first, int64_t count) {
    k.erase(k.begin() + first * shape.k_bytes, k.begin() + (first + count) * shape.k_bytes);
    v.erase(v.begin() + first * shape.v_bytes, v.begin() + (first + count) * shape.v_bytes);
    slots -= count;
    capacity -= count;
  }
  void Resize(const RowShape& shape, int64_t to) {
    capacity = to;
    k.resize(static_cast<size_t>(to * shape.k_bytes));
    v.resize(static_cast<size_t>(to * shape.v_bytes));
  }
};

#endif  // KVCHECK_EXAMPLE_ROW_H_
