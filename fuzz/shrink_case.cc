#include "fuzz/shrink_case.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

template <typename C>
class Smaller {
 public:
  explicit Smaller(const C& c) : c_(c) {}

  // A copy with a change, if that is a change and a legal case.
  void Try(const std::function<void(C*)>& change) {
    C copy = c_;
    change(&copy);
    if (copy == c_) return;
    try {
      Validate(copy);
    } catch (const Error&) {
      return;
    }
    cases_.emplace_back(std::move(copy));
  }

  // An extent, a multiple of `step`: the least, half, one step less.
  void Extent(int64_t value, int64_t step, const std::function<void(C*, int64_t)>& set) {
    std::vector<int64_t> tried = {value};
    for (const int64_t smaller : {step, value / 2 / step * step, value - step}) {
      if (smaller < step || std::find(tried.begin(), tried.end(), smaller) != tried.end()) continue;
      tried.push_back(smaller);
      Try([&](C* c) { set(c, smaller); });
    }
  }

  void Data(const char* plain_regime) {
    if (c_.data.IsFile()) return;
    Try([&](C* c) { c->data.regime = plain_regime; });
    Try([](C* c) { c->data.seed = 1; });
  }

  std::vector<Case> Take() { return std::move(cases_); }

 private:
  const C& c_;
  std::vector<Case> cases_;
};

void SetKvLen(AttentionCase* c, int64_t kv_len) {
  c->kv_len = kv_len;
  for (int64_t& padding : c->mask.left_padding) padding = std::min(padding, kv_len - 1);
}

std::vector<Case> SmallerOf(const AttentionCase& c) {
  Smaller<AttentionCase> smaller(c);
  using A = AttentionCase;
  smaller.Extent(c.batch, 1, [](A* a, int64_t n) {
    a->batch = n;
    if (!a->mask.left_padding.empty()) a->mask.left_padding.resize(static_cast<size_t>(n));
  });
  smaller.Extent(c.query_len, 1, [](A* a, int64_t n) { a->query_len = n; });
  smaller.Extent(c.kv_len, 1, SetKvLen);
  const int64_t ratio = c.query_heads / c.kv_heads;
  smaller.Extent(c.kv_heads, 1, [&](A* a, int64_t n) {
    a->kv_heads = n;
    a->query_heads = n * ratio;
  });
  smaller.Extent(c.query_heads, c.kv_heads, [](A* a, int64_t n) { a->query_heads = n; });
  if (c.k_dim == c.v_dim) {
    const int64_t group = std::max(BlockOf(c.k), BlockOf(c.v));
    smaller.Extent(c.k_dim, group, [](A* a, int64_t n) { a->k_dim = a->v_dim = n; });
  }
  smaller.Extent(c.k_dim, BlockOf(c.k), [](A* a, int64_t n) { a->k_dim = n; });
  smaller.Extent(c.v_dim, BlockOf(c.v), [](A* a, int64_t n) { a->v_dim = n; });
  smaller.Try([](A* a) {
    const MaskSpec plain;
    a->mask.array = plain.array;
    a->mask.axes = plain.axes;
    a->mask.additive_dtype = plain.additive_dtype;
  });
  smaller.Try([](A* a) { a->mask.left_padding.clear(); });
  smaller.Try([](A* a) { a->mask.window = {}; });
  smaller.Try([](A* a) { a->mask.causal = CausalAlignment::kNone; });
  smaller.Try([](A* a) { a->softcap.reset(); });
  smaller.Try([](A* a) { a->sinks.reset(); });
  smaller.Try([](A* a) { a->alibi = false; });
  smaller.Try([](A* a) { a->lse = LseKind::kNone, a->lse_type.reset(); });
  smaller.Try([](A* a) { a->lse_type.reset(); });
  smaller.Try([](A* a) { a->against_original = false; });
  // Together, where they have to be alike.
  smaller.Try([](A* a) { a->k = a->v = PlainFormat{a->q}; });
  smaller.Try([](A* a) { a->k = PlainFormat{a->q}; });
  smaller.Try([](A* a) { a->v = PlainFormat{a->q}; });
  smaller.Data("gauss");
  return smaller.Take();
}

std::vector<Case> SmallerOf(const CodecCase& c) {
  Smaller<CodecCase> smaller(c);
  smaller.Extent(c.rows, 1, [](CodecCase* a, int64_t n) { a->rows = n; });
  smaller.Extent(c.head_dim, BlockOf(c.format), [](CodecCase* a, int64_t n) { a->head_dim = n; });
  smaller.Data("gauss");
  return smaller.Take();
}

std::vector<Case> SmallerOf(const TensorCase&) { return {}; }
std::vector<Case> SmallerOf(const CacheCase&) { return {}; }   // shrink_trace.h
std::vector<Case> SmallerOf(const PrefixCase&) { return {}; }  // shrink_prefix.h

}  // namespace

std::vector<Plan> PlainerPlans(const Plan& plan) {
  std::vector<Plan> plans;
  const auto without = [&](bool has, const std::function<void(Plan*)>& drop) {
    if (!has) return;
    drop(&plans.emplace_back(plan));
  };
  without(plan.dequantize == DequantizeKind::kRotated, [](Plan* p) {
    p->dequantize = DequantizeKind::kStored;
    p->dequantize_roundings.reset();
  });
  without(plan.integer_qk.has_value(), [](Plan* p) { p->integer_qk.reset(); });
  without(plan.fixed_q.has_value(), [](Plan* p) { p->fixed_q.reset(); });
  without(plan.fixed_p.has_value(), [](Plan* p) { p->fixed_p.reset(); });
  return plans;
}

std::vector<Case> SmallerCases(const Case& c) {
  return std::visit([](const auto& kind) { return SmallerOf(kind); }, c);
}

namespace {

// Seeds that failures are looked for with.
constexpr uint64_t kSeeds[] = {1, 2, 3, 4};

template <typename C>
DataSource& DataIn(C* c) {
  if constexpr (requires { c->setup; }) {
    return c->setup.data;
  } else {
    return c->data;
  }
}

// The case with other data; as it is where they stand in a file.
Case WithSeed(const Case& c, uint64_t seed) {
  Case other = c;
  const auto set = [seed](DataSource& data) {
    if (!data.IsFile()) data.seed = seed;
  };
  std::visit([&](auto& kind) { set(DataIn(&kind)); }, other);
  return other;
}

}  // namespace

ShrunkCase ShrinkCase(const Case& c, const std::function<bool(const Case&)>& still_fails,
                      int64_t max_runs, const std::function<bool(const Case&)>& has) {
  ShrunkCase shrunk = {.c = c};
  bool reseeds = false;
  const auto takes = [&](Case candidate) {
    if (shrunk.runs >= max_runs) {
      shrunk.complete = false;
      return false;
    }
    ++shrunk.runs;
    if (!still_fails(candidate)) return false;
    shrunk.c = std::move(candidate);
    return true;
  };
  const auto shrinks_to = [&](const Case& smaller) {
    if (has && !has(smaller)) return false;
    if (takes(smaller)) return true;
    for (const uint64_t seed : kSeeds) {
      if (!reseeds || !shrunk.complete) break;
      const Case other = WithSeed(smaller, seed);
      // Other data alone make nothing smaller.
      if (other == smaller || other == WithSeed(shrunk.c, seed)) continue;
      if (takes(other)) return true;
    }
    return false;
  };
  const auto shrink = [&] {
    for (bool smaller = true; smaller && shrunk.complete;) {
      smaller = false;
      for (const Case& candidate : SmallerCases(shrunk.c)) {
        smaller = shrinks_to(candidate);
        if (smaller || !shrunk.complete) break;
      }
    }
  };
  shrink();
  // Whether the failure is of the data shows where the case is asked with others.
  for (const uint64_t seed : kSeeds) {
    const Case other = WithSeed(shrunk.c, seed);
    if (reseeds || shrunk.runs >= max_runs || other == shrunk.c) continue;
    ++shrunk.runs;
    reseeds = !still_fails(other);
  }
  if (reseeds) shrink();
  return shrunk;
}

}  // namespace kvcheck
