#include "tools/python/verdict_state.h"

#include <array>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

// The bindings name every member of each struct: with a new one this does not compile.
template <typename Io>
void Fields(Io& io, TermShare& x) {
  auto& [name, value, share] = x;
  io(name, value, share);
}

template <typename Io>
void Fields(Io& io, ElementReport& x) {
  auto& [element, coordinates, expected, expected_low, got, expected_text, got_text, error, bound,
         reference_bound, mass, ratio, terms, precision] = x;
  io(element, coordinates, expected, expected_low, got, expected_text, got_text, error, bound,
     reference_bound, mass, ratio, terms, precision);
}

template <typename Io>
void Fields(Io& io, ReasonCount& x) {
  auto& [reason, elements] = x;
  io(reason, elements);
}

template <typename Io>
void Fields(Io& io, SampleReport& x) {
  auto& [rows, of_rows, at_ends, at_edges, unusual, at_random, seed, found_rows, missed] = x;
  io(rows, of_rows, at_ends, at_edges, unusual, at_random, seed, found_rows, missed);
}

template <typename Io>
void Fields(Io& io, JudgeCounts& x) {
  auto& [elements, judged, failed, failed_by_noise, unconstrained, undefined, unbounded, free,
         on_reference_bound, unresolved, left_out, loose, accepted] = x;
  io(elements, judged, failed, failed_by_noise, unconstrained, undefined, unbounded, free,
     on_reference_bound, unresolved, left_out, loose, accepted);
}

template <typename Io>
void Fields(Io& io, SpecialCounts& x) {
  auto& [count] = x;
  io(count);
}

template <typename Io>
void Fields(Io& io, Quantiles& x) {
  auto& [q50, q90, q99, q100] = x;
  io(q50, q90, q99, q100);
}

template <typename Io>
void Fields(Io& io, Metrics& x) {
  auto& [finite, not_finite, max_abs, mean_abs, rms_abs, max_rel, mean_rel, rms_rel, max_ulp,
         ulp_histogram, nmse, cosine, snr_db, bound_ratio, median_bound_share, expected_rms,
         got_rms, passing_ulp, passing_abs, passing_rel, passing_factor] = x;
  io(finite, not_finite, max_abs, mean_abs, rms_abs, max_rel, mean_rel, rms_rel, max_ulp,
     ulp_histogram, nmse, cosine, snr_db, bound_ratio, median_bound_share, expected_rms, got_rms,
     passing_ulp, passing_abs, passing_rel, passing_factor);
}

template <typename Io>
void Fields(Io& io, DirectionStatistic& x) {
  auto& [group, direction, hint, z, limit, coefficient, detectable, rows, shown_rows, over] = x;
  io(group, direction, hint, z, limit, coefficient, detectable, rows, shown_rows, over);
}

template <typename Io>
void Fields(Io& io, QuadraticStatistic& x) {
  auto& [group, direction, q, limit, elements, detectable, shown_rows, over] = x;
  io(group, direction, q, limit, elements, detectable, shown_rows, over);
}

template <typename Io>
void Fields(Io& io, BlindSpot& x) {
  auto& [direction, where] = x;
  io(direction, where);
}

template <typename Io>
void Fields(Io& io, StatisticsReport& x) {
  auto& [tests, false_alarm, skipped_elements, directions, quadratics, over, blind_to] = x;
  io(tests, false_alarm, skipped_elements, directions, quadratics, over, blind_to);
}

template <typename Io>
void Fields(Io& io, DirectionFit& x) {
  auto& [direction, hint, coefficient, explained_share, per_unit, elements] = x;
  io(direction, hint, coefficient, explained_share, per_unit, elements);
}

template <typename Io>
void Fields(Io& io, WeightEstimate& x) {
  auto& [first, count, change, error] = x;
  io(first, count, change, error);
}

template <typename Io>
void Fields(Io& io, HeadEstimates& x) {
  auto& [batch, head, queries, change, error] = x;
  io(batch, head, queries, change, error);
}

template <typename Io>
void Fields(Io& io, TriedCause& x) {
  auto& [name, text, explained, misfit] = x;
  io(name, text, explained, misfit);
}

template <typename Io>
void Fields(Io& io, SeenKeys& x) {
  auto& [kv_len, rows, elements, misfit, cause, text, explained, has_free_numbers, tried, keys,
         block, heads] = x;
  io(kv_len, rows, elements, misfit, cause, text, explained, has_free_numbers, tried, keys, block,
     heads);
}

template <typename Io>
void Fields(Io& io, HeatAxis& x) {
  auto& [label, extent, width, first] = x;
  io(label, extent, width, first);
}

template <typename Io>
void Fields(Io& io, HeatMaps& x) {
  auto& [rows_by_channel, heads_by_token, heads_axis, token_axis] = x;
  io(rows_by_channel, heads_by_token, heads_axis, token_axis);
}

template <typename Io>
void Fields(Io& io, DeclaredWord& x) {
  auto& [word, former, value, meaning, is_default] = x;
  io(word, former, value, meaning, is_default);
}

template <typename Io>
void Fields(Io& io, DeclaredChange& x) {
  auto& [of_profile, words] = x;
  io(of_profile, words);
}

template <typename Io>
void Fields(Io& io, OutputVerdict& x) {
  auto& [name, outcome, reasons, rule, dtype, shape, counts, alternatives, not_judged, special,
         special_lines, worst, metrics, basic_metrics, median_bound_share, with_share, pass_as_zero,
         detectable_share, rows_with_inputs, blind_rows, blind_where, statistics, by_bound_alone,
         sample, warnings, fits, seen, cause, passes_with, hints, plan_changes, changes_rows,
         changes_of_rows, breakdown, heat, rows_at, precision] = x;
  io(name, outcome, reasons, rule, dtype, shape, counts, alternatives, not_judged, special,
     special_lines, worst, metrics, basic_metrics, median_bound_share, with_share, pass_as_zero,
     detectable_share, rows_with_inputs, blind_rows, blind_where, statistics, by_bound_alone,
     sample, warnings, fits, seen, cause, passes_with, hints, plan_changes, changes_rows,
     changes_of_rows, breakdown, heat, rows_at, precision);
}

template <typename Io>
void Fields(Io& io, Verdict& x) {
  auto& [outcome, reasons, outputs, elements, of_operations, warnings, assumptions, case_text, plan,
         profile, implementation, command] = x;
  io(outcome, reasons, outputs, elements, of_operations, warnings, assumptions, case_text, plan,
     profile, implementation, command);
}

class Writer {
 public:
  template <typename... Ts>
  void operator()(Ts&... fields) {
    (Put(fields), ...);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  template <typename T>
  void Put(T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes_.append(reinterpret_cast<const char*>(&x), sizeof x);
    } else {
      Fields(*this, x);
    }
  }
  void Put(std::string& x) {
    size_t size = x.size();
    Put(size);
    bytes_ += x;
  }
  template <typename T>
  void Put(std::vector<T>& x) {
    size_t size = x.size();
    Put(size);
    for (T& element : x) Put(element);
  }
  template <typename T>
  void Put(std::optional<T>& x) {
    bool is_there = x.has_value();
    Put(is_there);
    if (x) Put(*x);
  }
  template <typename T, size_t N>
  void Put(std::array<T, N>& x) {
    for (T& element : x) Put(element);
  }
  void Put(HeatMap& x) {
    bool is_empty = x.empty();
    Put(is_empty);
    if (is_empty) return;
    HeatAxis down = x.down();
    HeatAxis across = x.across();
    (*this)(down, across);
    for (int64_t y = 0; y < down.Cells(); ++y) {
      for (int64_t i = 0; i < across.Cells(); ++i) {
        double cell = x.At(y, i);
        Put(cell);
      }
    }
  }

  std::string bytes_;
};

constexpr Outcome LastOf(Outcome) { return Outcome::kTimedOut; }
constexpr Precision LastOf(Precision) { return Precision::kOracle100; }
constexpr DType LastOf(DType) { return DType::kBool; }

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename... Ts>
  void operator()(Ts&... fields) {
    (Get(fields), ...);
  }
  void Finish() const { Check(bytes_.empty()); }

 private:
  static void Check(bool holds) {
    if (!holds) {
      throw Error(ErrorCode::kParse, "these bytes are no verdict of this version of kvcheck",
                  "pickled verdict");
    }
  }
  template <typename T>
  void Get(T& x) {
    if constexpr (std::is_same_v<T, bool>) {
      unsigned char byte = 0;
      Get(byte);
      Check(byte <= 1);
      x = byte == 1;
    } else if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> number{};
      Get(number);
      Check(number >= 0 && number <= static_cast<std::underlying_type_t<T>>(LastOf(T{})));
      x = static_cast<T>(number);
    } else if constexpr (std::is_arithmetic_v<T>) {
      Check(bytes_.size() >= sizeof x);
      std::memcpy(&x, bytes_.data(), sizeof x);
      bytes_.remove_prefix(sizeof x);
    } else {
      Fields(*this, x);
    }
  }
  size_t Size() {
    size_t size = 0;
    Get(size);
    // Every element has at least a byte.
    Check(size <= bytes_.size());
    return size;
  }
  void Get(std::string& x) {
    const size_t size = Size();
    x = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
  }
  template <typename T>
  void Get(std::vector<T>& x) {
    for (size_t left = Size(); left > 0; --left) Get(x.emplace_back());
  }
  template <typename T>
  void Get(std::optional<T>& x) {
    bool is_there = false;
    Get(is_there);
    if (is_there) Get(x.emplace());
  }
  template <typename T, size_t N>
  void Get(std::array<T, N>& x) {
    for (T& element : x) Get(element);
  }
  void Get(HeatMap& x) {
    bool is_empty = false;
    Get(is_empty);
    if (is_empty) return;
    HeatAxis down;
    HeatAxis across;
    (*this)(down, across);
    for (const HeatAxis* axis : {&down, &across}) {
      constexpr int64_t kMost = int64_t{1} << 62;
      Check(axis->extent >= 1 && axis->extent < kMost && axis->width >= 1 && axis->width < kMost);
      Check(static_cast<size_t>(axis->Cells()) <= bytes_.size());
    }
    Check(static_cast<size_t>(down.Cells()) <=
          bytes_.size() / sizeof(double) / static_cast<size_t>(across.Cells()));
    x = HeatMap(down, across);
    for (int64_t y = 0; y < down.Cells(); ++y) {
      for (int64_t i = 0; i < across.Cells(); ++i) {
        double cell = 0;
        Get(cell);
        x.Add(y * down.width, i * across.width, cell);
      }
    }
  }

  std::string_view bytes_;
};

}  // namespace

std::string StateOf(const Verdict& verdict) {
  Writer io;
  std::string version = ToolVersion();
  Verdict copy = verdict;
  io(version, copy);
  return io.Take();
}

Verdict VerdictOf(std::string_view state) {
  Reader io(state);
  std::string version;
  io(version);
  if (version != ToolVersion()) {
    throw Error(ErrorCode::kParse,
                "these bytes are no verdict of this version of kvcheck: judge again, or keep its "
                "to_json()",
                "pickled verdict");
  }
  Verdict verdict;
  io(verdict);
  io.Finish();
  return verdict;
}

}  // namespace kvcheck
