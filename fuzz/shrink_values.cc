// Steps over numbers, options and the setup, and the size that all steps lower.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "fuzz/shrink_steps.h"

namespace kvcheck {
namespace {

// The setup that everything tends to is that of the examples in reference/README.md: f32, 8
// channels, growth 8, seed 1.
constexpr int64_t kPlainDim = 8;
constexpr int64_t kPlainGrowth = 8;

int64_t RankOf(const CacheLayout& layout) {
  int64_t rank = layout.window + layout.keep + layout.chunk;
  if (layout.kind == LayoutKind::kRing) rank += 2000;
  if (layout.kind == LayoutKind::kChunk) rank += 1000;
  if (layout.window > 0) rank += 100;
  if (layout.keep > 0) rank += 100;
  return rank;
}

struct Dial {
  int64_t* value;
  int64_t least;
};

// Every number of the case that is worth lowering; those that have no text in an operation are left
// out.
std::vector<Dial> DialsOf(CacheCase* c) {
  std::vector<Dial> dials;
  CacheLayout& layout = c->setup.layout;
  if (layout.window > 0) dials.push_back({&layout.window, 1});
  if (layout.keep > 0) dials.push_back({&layout.keep, 1});
  if (layout.chunk > 0) dials.push_back({&layout.chunk, 1});
  for (CacheOp& op : c->ops) {
    switch (op.kind) {
      case CacheOpKind::kNew:
        dials.push_back({&op.count, 0});
        break;
      case CacheOpKind::kAppend:
        dials.push_back({&op.count, 1});
        break;
      case CacheOpKind::kTrim:
      case CacheOpKind::kExtract:
        dials.push_back({&op.count, 0});
        break;
      case CacheOpKind::kDamage:
        dials.push_back({&op.at, 0});
        break;
      default:
        break;
    }
    for (int64_t& number : op.numbers) dials.push_back({&number, 0});
    if (op.window) dials.push_back({&*op.window, 1});
    if (!op.layout) continue;
    if (op.layout->window > 0) dials.push_back({&op.layout->window, 1});
    if (op.layout->keep > 0) dials.push_back({&op.layout->keep, 1});
    if (op.layout->chunk > 0) dials.push_back({&op.layout->chunk, 1});
  }
  return dials;
}

// c with a change.
template <typename Change>
bool Try(const CacheCase& c, const Offer& offer, Change change) {
  CacheCase changed = c;
  change(&changed);
  return offer(std::move(changed));
}

}  // namespace

TraceSize SizeOf(const CacheCase& c) {
  const CacheSetup& setup = c.setup;
  TraceSize size;
  size.bareness = BarenessOf(c);
  size.operations = std::ssize(c.ops);
  size.setup = RankOf(setup.layout) + 10 * (RankOf(setup.k) + RankOf(setup.v)) +
               100 * RankOf(setup.x) + 100 * setup.kv_heads + 10 * setup.query_heads +
               std::max(setup.k_dim, kPlainDim) + std::max(setup.v_dim, kPlainDim);
  if (setup.growth_tokens != kPlainGrowth) size.setup += 1 + setup.growth_tokens;
  if (setup.observe != Observe::kEach) ++size.setup;
  if (setup.data.seed != 1) ++size.setup;
  for (const CacheOp& op : c.ops) {
    // A cache made from another one needs that one.
    if (op.kind == CacheOpKind::kExtract || op.kind == CacheOpKind::kCopy ||
        op.kind == CacheOpKind::kLoad) {
      size.numbers += 3;
    }
    size.numbers += std::abs(op.count) + std::abs(op.at) + std::ssize(op.numbers);
    for (int64_t number : op.numbers) size.numbers += std::abs(number);
    if (op.window) size.numbers += 10 + std::abs(*op.window);
    if (op.scale) size.numbers += 10;
    if (op.sinks) size.numbers += 10;
    if (op.layout) size.numbers += 100 + RankOf(*op.layout);
    if (op.k) size.numbers += 100 + RankOf(*op.k);
    if (op.v) size.numbers += 100 + RankOf(*op.v);
    if (op.wrong != WrongColumns::kNothing) size.numbers += 10 + static_cast<int64_t>(op.wrong);
    size.numbers += static_cast<int64_t>(op.damage) + 2 * std::ssize(op.operands);
    size.names += op.slot + op.target + op.key;
    for (int operand : op.operands) size.names += operand;
  }
  return size;
}

bool LowerNumbers(const CacheCase& c, const Offer& offer) {
  CacheCase changed = c;
  const size_t count = DialsOf(&changed).size();
  const auto value = [&](CacheCase* from, size_t i) { return DialsOf(from)[i]; };
  for (size_t i = 0; i < count; ++i) {
    const Dial dial = value(&changed, i);
    const int64_t now = *dial.value;
    // The least, then about half, then one less: few tries where much can go. Negative numbers,
    // which are illegal on purpose, come nearer to 0.
    const int64_t least = now < dial.least ? -1 : dial.least;
    for (int64_t lower : {least, (now + least) / 2, now < least ? now + 1 : now - 1}) {
      if (std::abs(lower) >= std::abs(now)) continue;
      if (Try(c, offer, [&](CacheCase* to) { *value(to, i).value = lower; })) return true;
    }
  }
  // A window and what fills it, padding and the append that feeds it: two by the same number.
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      const Dial a = value(&changed, i);
      const Dial b = value(&changed, j);
      const int64_t most = std::min(*a.value - a.least, *b.value - b.least);
      for (int64_t by : {most, int64_t{1}}) {
        if (by < 1 || most < 1) continue;
        const auto lower = [&](CacheCase* to) {
          *value(to, i).value -= by;
          *value(to, j).value -= by;
        };
        if (Try(c, offer, lower)) return true;
      }
    }
  }
  return false;
}

bool DropOptions(const CacheCase& c, const Offer& offer) {
  for (size_t i = 0; i < c.ops.size(); ++i) {
    const CacheOp& op = c.ops[i];
    const auto with = [&](auto change) {
      return Try(c, offer, [&](CacheCase* to) { change(&to->ops[i]); });
    };
    if (op.window && with([](CacheOp* o) { o->window.reset(); })) return true;
    if (op.scale && with([](CacheOp* o) { o->scale.reset(); })) return true;
    if (op.sinks && with([](CacheOp* o) { o->sinks = false; })) return true;
    if (op.kind == CacheOpKind::kNew) {
      if (op.layout && with([](CacheOp* o) { o->layout.reset(); })) return true;
      if (op.k && with([](CacheOp* o) { o->k.reset(); })) return true;
      if (op.v && with([](CacheOp* o) { o->v.reset(); })) return true;
      if (!op.numbers.empty() && with([](CacheOp* o) { o->numbers.clear(); })) return true;
      // Or the setup says so.
      if (op.layout && Try(c, offer, [&](CacheCase* to) {
            to->setup.layout = *op.layout;
            to->ops[i].layout.reset();
          })) {
        return true;
      }
      if ((op.k || op.v) && Try(c, offer, [&](CacheCase* to) {
            to->setup.k = op.k.value_or(to->setup.k);
            to->setup.v = op.v.value_or(to->setup.v);
            to->ops[i].k.reset();
            to->ops[i].v.reset();
          })) {
        return true;
      }
    }
    if (op.kind == CacheOpKind::kToQuantized) {
      for (const KvFormat& format : {c.setup.k, c.setup.v, *op.k, *op.v}) {
        if (with([&](CacheOp* o) { o->k = format; })) return true;
        if (with([&](CacheOp* o) { o->v = format; })) return true;
      }
    }
    if (op.wrong > WrongColumns::kRows) {
      if (with([](CacheOp* o) { o->wrong = WrongColumns::kRows; })) return true;
    }
    if (op.damage != Damage::kTruncate) {
      if (with([](CacheOp* o) { o->damage = Damage::kTruncate; })) return true;
    }
    if (op.kind == CacheOpKind::kFilter || op.kind == CacheOpKind::kPrepare) {
      for (int64_t n = 0; n < std::ssize(op.numbers); ++n) {
        if (with([&](CacheOp* o) { o->numbers.erase(o->numbers.begin() + n); })) return true;
      }
    }
    if (op.operands.size() > 1) {
      for (int64_t n = 0; n < std::ssize(op.operands); ++n) {
        if (with([&](CacheOp* o) { o->operands.erase(o->operands.begin() + n); })) return true;
      }
    }
  }
  return false;
}

bool SimplifySetup(const CacheCase& c, const Offer& offer) {
  const CacheSetup& now = c.setup;
  const auto with = [&](auto change) {
    return Try(c, offer, [&](CacheCase* to) { change(&to->setup); });
  };
  if (with([](CacheSetup* s) { s->observe = Observe::kEach; })) return true;
  for (const CacheLayout& layout :
       {CacheLayout{}, CacheLayout{LayoutKind::kLinear, now.layout.window, 0, 0},
        CacheLayout{LayoutKind::kLinear, now.layout.chunk, 0, 0},
        CacheLayout{LayoutKind::kRing, now.layout.window, 0, 0}}) {
    if (with([&](CacheSetup* s) { s->layout = layout; })) return true;
  }
  // Stored as given: vectors and formats of one type.
  for (DType type : {DType::kFloat32, DType::kFloat16}) {
    if (with([&](CacheSetup* s) { s->x = type, s->k = s->v = PlainFormat{type}; })) return true;
  }
  // K and V alike, then each alone; a coded format needs its block in head_dim.
  std::vector<KvFormat> formats;
  for (DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    formats.push_back(PlainFormat{type});
  }
  for (const KvFormat& format : {now.k, now.v}) {
    for (const KvFormat& simpler : SimplerFormats(format)) formats.push_back(simpler);
  }
  formats.push_back(now.k);
  formats.push_back(now.v);
  for (const KvFormat& format : formats) {
    if (with([&](CacheSetup* s) { s->k = s->v = format; })) return true;
    if (with([&](CacheSetup* s) { s->k = format; })) return true;
    if (with([&](CacheSetup* s) { s->v = format; })) return true;
  }
  if (with([](CacheSetup* s) { s->x = DType::kFloat32; })) return true;
  if (with([](CacheSetup* s) { s->kv_heads = s->query_heads = 1; })) return true;
  if (with([](CacheSetup* s) { s->kv_heads = s->query_heads = 2; })) return true;
  if (with([](CacheSetup* s) { s->query_heads = s->kv_heads; })) return true;
  for (int64_t dim : {kPlainDim, int64_t{16}, int64_t{32}, int64_t{64}}) {
    if (with([&](CacheSetup* s) { s->k_dim = s->v_dim = dim; })) return true;
    if (with([&](CacheSetup* s) { s->k_dim = dim; })) return true;
    if (with([&](CacheSetup* s) { s->v_dim = dim; })) return true;
  }
  if (with([](CacheSetup* s) { s->growth_tokens = kPlainGrowth; })) return true;
  if (with([](CacheSetup* s) { s->growth_tokens = 1; })) return true;
  return with([](CacheSetup* s) { s->data.seed = 1; });
}

}  // namespace kvcheck
