#include "drawn_traces.h"

#include <array>
#include <vector>

#include "reference/data/generator.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

template <typename T>
const T& Pick(Generator* random, const std::vector<T>& values) {
  return values[random->Below(values.size())];
}

// What drawing needs to know of a slot: enough for legal calls to be likely.
struct KnownSlot {
  bool used = false;
  int64_t rows = 0;
  bool pending = false;
  int64_t to_come = 0;  // columns, at most
};

CacheLayout DrawLayout(Generator* random) {
  switch (random->Below(4)) {
    case 0:
      return {};
    case 1:
      return {LayoutKind::kLinear, random->Between(1, 9), 0, 0};
    case 2: {
      const int64_t window = random->Between(1, 9);
      const int64_t keep = random->Between(0, window - 1);
      return {LayoutKind::kRing, window, keep, 0};
    }
    default:
      return {LayoutKind::kChunk, 0, 0, random->Between(1, 7)};
  }
}

CacheOpKind DrawKind(Generator* random) {
  // Appends are what states are made of; the others in proportion to what they can break.
  static const std::vector<CacheOpKind> kinds = [] {
    std::vector<CacheOpKind> all;
    const auto add = [&](CacheOpKind kind, int weight) {
      for (; weight > 0; --weight) all.push_back(kind);
    };
    add(CacheOpKind::kAppend, 24);
    add(CacheOpKind::kNew, 2);
    add(CacheOpKind::kPrepare, 3);
    add(CacheOpKind::kFinalize, 3);
    add(CacheOpKind::kTrim, 6);
    add(CacheOpKind::kFilter, 4);
    add(CacheOpKind::kExtend, 3);
    add(CacheOpKind::kMerge, 4);
    add(CacheOpKind::kExtract, 5);
    add(CacheOpKind::kToQuantized, 2);
    add(CacheOpKind::kCopy, 2);
    add(CacheOpKind::kSave, 2);
    add(CacheOpKind::kLoad, 2);
    add(CacheOpKind::kDamage, 3);
    add(CacheOpKind::kAttend, 4);
    add(CacheOpKind::kDrop, 1);
    return all;
  }();
  return Pick(random, kinds);
}

}  // namespace

CacheCase DrawTrace(uint64_t seed, const DrawOptions& options) {
  Generator random(seed, "optimized_trace", 0);
  const auto chance = [&](uint64_t of) { return random.Below(of) == 0; };
  CacheCase c;
  CacheSetup& setup = c.setup;
  static const std::vector<KvFormat> formats = CacheFormats();
  setup.layout = DrawLayout(&random);
  setup.k = Pick(&random, formats);
  setup.v = chance(3) ? setup.k : Pick(&random, formats);
  // Half of them plain, which are a small part of all formats.
  if (chance(2)) setup.k = formats[random.Below(6)];
  if (chance(2)) setup.v = formats[random.Below(6)];
  // What other layouts refuse would leave a trace without a token.
  if (!KeepsGroups(setup.layout, setup.k) || !KeepsGroups(setup.layout, setup.v)) setup.layout = {};
  setup.x = Pick<DType>(&random, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  setup.kv_heads = random.Between(1, 3);
  setup.query_heads = setup.kv_heads * random.Between(1, 2);
  const auto dim = [&](const KvFormat& format) -> int64_t {
    const int64_t block = BlockOf(format);
    if (block > 1) return block * random.Between(1, block == 32 ? 2 : 1);
    return Pick<int64_t>(&random, {16, 32, 33, 64});
  };
  setup.k_dim = dim(setup.k);
  setup.v_dim = dim(setup.v);
  setup.growth_tokens = random.Between(1, 8);
  setup.observe = chance(8) ? Observe::kLast : Observe::kEach;
  setup.data = {"tokens", seed, ""};

  std::array<KnownSlot, kSlots> known{};
  const auto slot = [&] { return static_cast<int>(random.Below(3)); };
  for (int i = 0; i < options.operations; ++i) {
    CacheOp op;
    op.kind = i == 0 ? CacheOpKind::kNew : DrawKind(&random);
    if (op.kind == CacheOpKind::kAttend && !options.attends) op.kind = CacheOpKind::kAppend;
    op.slot = slot();
    op.target = slot();
    op.key = static_cast<int>(random.Below(2));
    // Mostly where something is.
    for (int turn = 0; turn < 3 && i > 0 && !known[static_cast<size_t>(op.slot)].used; ++turn) {
      op.slot = slot();
    }
    KnownSlot& at = known[static_cast<size_t>(op.slot)];
    KnownSlot& to = known[static_cast<size_t>(op.target)];
    if (at.pending && op.kind != CacheOpKind::kAppend && !chance(4)) {
      op.kind = at.to_come > 0 ? CacheOpKind::kAppend : CacheOpKind::kFinalize;
    }
    switch (op.kind) {
      case CacheOpKind::kNew:
        op.count = chance(3) ? 1 : random.Between(chance(4) ? 0 : 1, 4);
        if (chance(2)) {
          for (int64_t b = 0; b < op.count; ++b) op.numbers.push_back(random.Between(0, 4));
        }
        at = {true, op.count, false, 0};
        break;
      case CacheOpKind::kAppend:
        op.count = chance(3) ? 1 : random.Between(1, chance(4) ? 20 : 6);
        if (chance(40)) op.wrong = static_cast<WrongColumns>(1 + random.Below(kWrongColumns));
        if (op.wrong == WrongColumns::kNothing) at.to_come -= op.count;
        break;
      case CacheOpKind::kPrepare:
        for (int64_t b = chance(10) ? 1 : 0; b < at.rows; ++b) {
          op.numbers.push_back(random.Between(chance(20) ? -1 : 0, 6));
        }
        if (static_cast<int64_t>(op.numbers.size()) == at.rows) {
          at.pending = at.used;
          at.to_come = 10;
        }
        break;
      case CacheOpKind::kFinalize:
        if (at.to_come <= 0) at.pending = false;
        break;
      case CacheOpKind::kTrim:
        op.count = random.Between(chance(20) ? -1 : 0, chance(4) ? 30 : 5);
        break;
      case CacheOpKind::kFilter: {
        const int64_t most = at.rows - (chance(10) ? 0 : 1);
        int64_t rows = most < 0 ? 0 : random.Between(chance(8) ? 0 : 1, at.rows + 1);
        for (; rows > 0; --rows) op.numbers.push_back(random.Between(chance(40) ? -1 : 0, most));
        at.rows = static_cast<int64_t>(op.numbers.size());
        break;
      }
      case CacheOpKind::kExtend:
        if (at.used && to.used) at.rows += to.rows;
        break;
      case CacheOpKind::kMerge: {
        for (int64_t n = random.Between(1, 4); n > 0; --n) {
          int operand = slot();
          for (int turn = 0; turn < 6 && known[static_cast<size_t>(operand)].rows != 1; ++turn) {
            operand = slot();
          }
          op.operands.push_back(operand);
        }
        to = {true, static_cast<int64_t>(op.operands.size()), false, 0};
        break;
      }
      case CacheOpKind::kExtract:
        op.count = random.Between(chance(20) ? -1 : 0, std::max<int64_t>(0, at.rows - 1));
        if (at.used) to = {true, 1, false, 0};
        break;
      case CacheOpKind::kToQuantized:
        op.k = chance(3) ? setup.k : Pick(&random, formats);
        op.v = chance(3) ? setup.v : Pick(&random, formats);
        break;
      case CacheOpKind::kCopy:
        to = at;
        break;
      case CacheOpKind::kLoad:
        to = {true, 1, false, 0};
        break;
      case CacheOpKind::kDamage:
        op.damage = static_cast<Damage>(random.Below(4));
        op.at = random.Between(0, 500);
        break;
      case CacheOpKind::kAttend:
        if (chance(2)) op.window = random.Between(chance(10) ? 0 : 1, 6);
        op.sinks = chance(2);
        if (chance(4)) op.scale = 0.5;
        break;
      case CacheOpKind::kDrop:
        at = {};
        break;
      case CacheOpKind::kSave:
        break;
    }
    // A batch that keeps doubling would take all the time.
    if (at.rows > 12) {
      CacheOp filter;
      filter.kind = CacheOpKind::kFilter;
      filter.slot = op.slot;
      filter.numbers = {0, 2, 1};
      c.ops.push_back(op);
      op = filter;
      at.rows = 3;
    }
    c.ops.push_back(op);
  }
  return c;
}

}  // namespace kvcheck
