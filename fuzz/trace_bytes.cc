#include "fuzz/trace_bytes.h"

#include <algorithm>
#include <array>
#include <vector>

#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Next() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  int64_t Below(int64_t n) { return Next() % n; }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  template <typename T>
  T Pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }

 private:
  std::span<const uint8_t> rest_;
};

const KvFormat& PickFormat(Bytes* bytes) {
  static const std::vector<KvFormat> formats = CacheFormats();
  // There are more than a byte tells apart.
  const int64_t high = 256 * bytes->Below(256);
  return formats[static_cast<size_t>(high + bytes->Below(256)) % formats.size()];
}

CacheLayout TakeLayout(Bytes* bytes) {
  const int64_t kind = bytes->Below(5);
  const int64_t window = bytes->Between(1, 9);
  const int64_t keep = bytes->Below(window);
  switch (kind) {
    case 0:
      return {};
    case 1:
      return {LayoutKind::kLinear, window, 0, 0};
    case 2:
      return {LayoutKind::kRing, window, 0, 0};
    case 3:
      return {LayoutKind::kRing, window, keep, 0};
    default:
      return {LayoutKind::kChunk, 0, 0, window};
  }
}

// Plain rows of 16 and 33 elements: an odd number of bytes, too.
int64_t TakeDim(const KvFormat& format, Bytes* bytes) {
  const int64_t choice = bytes->Below(2);
  const int64_t block = std::max<int64_t>(BlockOf(format), 32);  // fewer channels of codes collide
  if (!IsPlain(format)) return block * (block == 32 ? 1 + choice : 1);
  return choice == 0 ? 16 : 33;
}

CacheSetup TakeSetup(Bytes* bytes) {
  CacheSetup setup;
  setup.layout = TakeLayout(bytes);
  setup.k = PickFormat(bytes);
  setup.v = PickFormat(bytes);
  setup.x = bytes->Pick<DType>({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  setup.kv_heads = bytes->Between(1, 2);
  setup.query_heads = setup.kv_heads * bytes->Between(1, 2);
  const int64_t k_dim = TakeDim(setup.k, bytes);
  setup.v_dim = TakeDim(setup.v, bytes);
  setup.k_dim = k_dim;
  setup.growth_tokens = bytes->Between(1, 4);
  setup.observe = bytes->Below(8) == 7 ? Observe::kLast : Observe::kEach;
  setup.data = {"tokens", 1, ""};
  return setup;
}

// The kind of an operation, half of them appends: states are made of these.
CacheOpKind TakeKind(Bytes* bytes) {
  const int64_t choice = bytes->Below(int64_t{2} * kCacheOpKinds);
  return choice < kCacheOpKinds ? static_cast<CacheOpKind>(choice) : CacheOpKind::kAppend;
}

// Up to four numbers from `low` on: rows, lengths, paddings.
std::vector<int64_t> TakeNumbers(int64_t low, int64_t high, Bytes* bytes) {
  std::vector<int64_t> numbers;
  for (int64_t left = bytes->Below(5); left > 0; --left) {
    numbers.push_back(bytes->Between(low, high));
  }
  return numbers;
}

void TakeNew(Bytes* bytes, CacheOp* op) {
  const int64_t shape = bytes->Next();
  op->count = shape % 5;
  if (shape / 5 % 2 == 1) {
    for (int64_t b = 0; b < op->count; ++b) op->numbers.push_back(bytes->Between(0, 4));
  }
  if (shape / 10 % 4 == 3) op->layout = TakeLayout(bytes);
  if (shape / 40 % 4 == 3) op->k = PickFormat(bytes);
}

// Which of the three places an operation has.
bool NamesKey(CacheOpKind kind) {
  return kind == CacheOpKind::kSave || kind == CacheOpKind::kLoad || kind == CacheOpKind::kDamage;
}
bool NamesTarget(CacheOpKind kind) {
  return kind == CacheOpKind::kExtend || kind == CacheOpKind::kMerge ||
         kind == CacheOpKind::kExtract || kind == CacheOpKind::kCopy || kind == CacheOpKind::kLoad;
}
bool NamesSlot(CacheOpKind kind) {
  return kind != CacheOpKind::kMerge && kind != CacheOpKind::kLoad && kind != CacheOpKind::kDamage;
}

CacheOp TakeOp(Bytes* bytes) {
  CacheOp op;
  op.kind = TakeKind(bytes);
  const int64_t places = bytes->Next();
  if (NamesSlot(op.kind)) op.slot = static_cast<int>(places % 3);
  if (NamesTarget(op.kind)) op.target = static_cast<int>(places / 3 % 3);
  if (NamesKey(op.kind)) op.key = static_cast<int>(places / 9 % 2);
  switch (op.kind) {
    case CacheOpKind::kNew:
      TakeNew(bytes, &op);
      break;
    case CacheOpKind::kAppend: {
      const int64_t columns = bytes->Next();
      op.count = 1 + columns % 20;
      if (columns >= 240) op.wrong = static_cast<WrongColumns>(1 + columns % kWrongColumns);
      break;
    }
    case CacheOpKind::kPrepare:
      op.numbers = TakeNumbers(-1, 6, bytes);
      break;
    case CacheOpKind::kFilter:
      op.numbers = TakeNumbers(-1, 3, bytes);
      break;
    case CacheOpKind::kTrim:
      op.count = bytes->Between(-1, 30);
      break;
    case CacheOpKind::kExtract:
      op.count = bytes->Between(-1, 4);
      break;
    case CacheOpKind::kMerge:
      for (int64_t left = bytes->Between(1, 4); left > 0; --left) {
        op.operands.push_back(static_cast<int>(bytes->Below(3)));
      }
      break;
    case CacheOpKind::kToQuantized:
      op.k = PickFormat(bytes);
      op.v = PickFormat(bytes);
      break;
    case CacheOpKind::kDamage: {
      const int64_t what = bytes->Next();
      op.damage = static_cast<Damage>(what % 4);
      op.at = what / 4;
      break;
    }
    case CacheOpKind::kAttend: {
      const int64_t how = bytes->Next();
      if (how % 2 == 1) op.window = how / 2 % 8;
      op.sinks = how / 16 % 2 == 1;
      if (how / 32 % 4 == 3) op.scale = 0.5;
      break;
    }
    default:
      break;
  }
  return op;
}

}  // namespace

CacheCase TraceOfBytes(std::span<const uint8_t> input) {
  Bytes bytes(input);
  CacheCase c;
  c.setup = TakeSetup(&bytes);
  int extends = 0;
  for (int i = 0; i < kMostTraceOps && !bytes.empty(); ++i) {
    CacheOp op = TakeOp(&bytes);
    if (op.kind == CacheOpKind::kExtend && ++extends > kMostExtends) op.kind = CacheOpKind::kCopy;
    c.ops.push_back(std::move(op));
  }
  return c;
}

}  // namespace kvcheck
