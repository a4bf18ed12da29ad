// Causes that leave the visible keys as they are and weigh them otherwise: sinks, keys of zeros (a
// factor of each row), a factor of the scores, softcap, ALiBi, and shares of ranges of keys that
// are merged wrongly.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "reference/attention/causes.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// Where a function of one number is smallest, between two others and to within `least`; by the
// golden section.
template <typename Function>
double Smallest(double low, double high, double least, const Function& of) {
  constexpr double kGolden = 0.6180339887498949;
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double of_a = of(a), of_b = of(b);
  for (int i = 0; i < 60 && high - low > least; ++i) {
    if (of_a < of_b) {
      high = b, b = a, of_b = of_a;
      a = high - kGolden * (high - low);
      of_a = of(a);
    } else {
      low = a, a = b, of_a = of_b;
      b = low + kGolden * (high - low);
      of_b = of(b);
    }
  }
  return (low + high) / 2;
}

void AddSinks(Causes* causes) {
  const AttentionCase& c = causes->c();
  const std::span<const double> sinks = causes->problem().asked.sinks;
  if (sinks.empty()) return;
  // sink: of a row; nullopt: none.
  const auto with = [&](const auto& sink) {
    return [sink](const SeenRow& row, size_t) -> std::optional<Mixture> {
      Mixture mixture = row.Right();
      const std::optional<double> logit = sink(row);
      mixture.share -= row.sink_weight;
      if (logit) mixture.share += std::exp(*logit - row.max) / row.denominator;
      return mixture;
    };
  };
  const auto own = [sinks](const SeenRow& row) {
    return sinks[static_cast<size_t>(row.query.query_head)];
  };
  causes->Add({"sinks ignored", "the sinks are left out", 0},
              with([](const SeenRow&) { return std::optional<double>(); }));
  const auto shifted = [&](int64_t by) {
    return with([sinks, by, heads = c.query_heads](const SeenRow& row) {
      return std::optional(sinks[static_cast<size_t>((row.query.query_head + by) % heads)]);
    });
  };
  // By how many heads: the best of all.
  int64_t best = 0;
  double least = HUGE_VAL;
  for (int64_t by = 1; by < std::min<int64_t>(c.query_heads, 256); ++by) {
    const double misfit = causes->Misfit(causes->problem().screen, shifted(by));
    if (misfit < least) least = misfit, best = by;
  }
  if (best > 0) {
    const int64_t back = best - c.query_heads;
    const std::string by = best == 1    ? "the next head"
                           : back == -1 ? "the previous head"
                                        : fmt::format("the head {} further", best);
    causes->Add({"sink of another head", "each head has the sink of " + by, 1, 0,
                 static_cast<double>(c.query_heads)},
                shifted(best));
  }
  const auto fixed = [&](std::string text, const auto& head_of) {
    causes->Add({"sink of another head", std::move(text), 1, 0, 4},
                with([sinks, head_of](const SeenRow& row) {
                  return std::optional(sinks[static_cast<size_t>(head_of(row))]);
                }));
  };
  fixed("all heads have the sink of head 0", [](const SeenRow&) { return int64_t{0}; });
  fixed("each query head has the sink of its key/value head's number",
        [](const SeenRow& row) { return row.kv_head; });
  fixed("each head has the sink of the first head of its group",
        [group = c.query_heads / c.kv_heads](const SeenRow& row) {
          return row.query.query_head / group * group;
        });
  const auto scaled = [&](std::string text, double factor) {
    causes->Add({"sink scaled", std::move(text), 2, 0, 6}, with([own, factor](const SeenRow& row) {
                  return std::optional(own(row) * factor);
                }));
  };
  scaled("the sinks are multiplied by the scale", c.scale);
  scaled("the sinks are divided by the scale", 1 / c.scale);
  scaled("the sinks are multiplied by log2(e)", std::numbers::log2e);
  scaled("the sinks are multiplied by ln(2)", std::numbers::ln2);
  scaled("the sinks have the other sign", -1);
  for (int64_t times = 2; times <= 128; times *= 2) {
    causes->Add(
        {"sinks counted several times", fmt::format("the sinks count {} times", times), 2, 0, 8},
        with([own, times](const SeenRow& row) {
          return std::optional(own(row) + std::log(static_cast<double>(times)));
        }));
  }
}

// Keys of zeros have the score 0 and add nothing to the sums: a factor of each row.
// Of which a cause is made.
constexpr double kMostZeroKeys = 1e9;

void AddZeroKeys(Causes* causes) {
  const auto of_row = [](const SeenRow& row) { return std::exp(-row.max) / row.denominator; };
  const auto predict = [&](double count) {
    return [&, count](const SeenRow& row, size_t) -> std::optional<Mixture> {
      Mixture mixture = row.Right();
      mixture.share += count * of_row(row);
      return mixture;
    };
  };
  const std::vector<size_t> all = causes->AllRows();
  // Where they outweigh all others a thousand times, the output is nothing.
  double most = 1;
  for (const SeenRow& row : causes->rows()) {
    const double weight = of_row(row);
    if (weight > 0) most = std::max(most, std::min(1e3 / weight, 2 * kMostZeroKeys));
  }
  const auto misfit_at = [&](double log_count) {
    return causes->Misfit(all, predict(std::exp(log_count)));
  };
  double start = 0, least = HUGE_VAL;
  for (double log_count = -1; log_count < std::log(most); log_count += 0.5) {
    const double misfit = misfit_at(log_count);
    if (misfit < least) least = misfit, start = log_count;
  }
  const double count = std::exp(Smallest(start - 0.6, start + 0.6, 1e-9, misfit_at));
  double square = 0;
  for (const SeenRow& row : causes->rows()) {
    const double weight = of_row(row);
    const double left = 1 + count * weight;
    for (size_t c = 0; c < row.o.size(); ++c) {
      const double g = weight * row.o[c] / (left * left);
      square += g * row.precision[c] * g;
    }
  }
  const auto whole = std::round(count);
  if (!(whole >= 1) || !(square > 0) || whole > kMostZeroKeys) return;
  // Not a number of keys, where it is no whole one for certain.
  const double error = 1 / std::sqrt(square);
  std::string text = fmt::format("{} of zeros take part: padding of K and V, with the score 0",
                                 whole == 1 ? "a key" : fmt::format("{:.0f} keys", whole));
  if (error > 0.3) text += fmt::format(" (the number is known to within {:.0f})", 3 * error + 1);
  causes->Add({"keys of zeros", std::move(text), 1, 1}, predict(whole));
}

void AddFactors(Causes* causes) {
  double product = 0, square = 0;
  std::set<int64_t> heads;
  for (const SeenRow& row : causes->rows()) {
    heads.insert(row.query.query_head);
    for (size_t c = 0; c < row.o.size(); ++c) {
      product += row.got[c] * row.precision[c] * row.o[c];
      square += row.o[c] * row.precision[c] * row.o[c];
    }
  }
  if (!(square > 0) || product == 0) return;
  const double factor = product / square;
  const auto predict = [factor](const SeenRow& row, size_t) -> std::optional<Mixture> {
    Mixture mixture = row.Right();
    for (double& sum : mixture.sum) sum *= factor;
    return mixture;
  };
  causes->Add({"output scaled",
               fmt::format("the output is {:.4g} times what it should be: a scale of V, or the "
                           "denominator",
                           factor),
               3, 1},
              predict);
  if (heads.size() < 2) return;
  std::vector<double> of_head(static_cast<size_t>(causes->c().query_heads), 1);
  for (const int64_t head : heads) {
    double up = 0, down = 0;
    for (const SeenRow& row : causes->rows()) {
      if (row.query.query_head != head) continue;
      for (size_t c = 0; c < row.o.size(); ++c) {
        up += row.got[c] * row.precision[c] * row.o[c];
        down += row.o[c] * row.precision[c] * row.o[c];
      }
    }
    if (down > 0) of_head[static_cast<size_t>(head)] = up / down;
  }
  std::string text = "each head's output is scaled by a number of its own: ";
  size_t shown = 0;
  for (const int64_t head : heads) {
    if (++shown > 8) continue;
    text += fmt::format("{}{:.4g} in head {}", shown == 1 ? "" : ", ",
                        of_head[static_cast<size_t>(head)], head);
  }
  causes->Add({"heads scaled", std::move(text), 4, static_cast<double>(heads.size())},
              [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                Mixture mixture = row.Right();
                for (double& sum : mixture.sum) {
                  sum *= of_head[static_cast<size_t>(row.query.query_head)];
                }
                return mixture;
              });
}

struct KnownFactor {
  double factor;
  const char* text;
};

std::vector<KnownFactor> KnownFactors(double scale) {
  return {{1 / scale, "the scores are not scaled"},
          {scale, "the scores are scaled twice"},
          {std::numbers::sqrt2, "the scores are multiplied by sqrt(2)"},
          {1 / std::numbers::sqrt2, "the scores are multiplied by 1 / sqrt(2)"},
          {2, "the scores are multiplied by 2"},
          {0.5, "the scores are multiplied by 1 / 2"},
          {std::numbers::log2e, "the scores are multiplied by log2(e), as if exp2 were exp"},
          {std::numbers::ln2, "the scores are multiplied by ln(2): exp2 without its log2(e)"}};
}

// The factor of the scores that fits best.
class Scale {
 public:
  explicit Scale(Causes* causes) : causes_(*causes), few_(causes->FewRows()) {}

  void Run() {
    const double scale = causes_.c().scale;
    const auto [start, error] = FirstOrder();
    if (error == 0) return;
    std::vector<double> starts = {std::clamp(start, -0.7, 2.0)};
    for (double log_factor = -3; log_factor <= 3; log_factor += 0.25) starts.push_back(log_factor);
    if (scale > 0 && scale != 1) {
      starts.push_back(-std::log(scale)), starts.push_back(std::log(scale));
    }
    const auto misfit_at = [&](double log_factor) {
      return causes_.Misfit(few_, Predict(std::exp(log_factor)));
    };
    double best = 0, least = HUGE_VAL;
    const std::vector<size_t> two(few_.begin(),
                                  few_.begin() + std::min<std::ptrdiff_t>(2, std::ssize(few_)));
    for (const double at : starts) {
      const double misfit = causes_.Misfit(two, Predict(std::exp(at)));
      if (misfit < least) least = misfit, best = at;
    }
    // Only a small change is not seen in two rows.
    const bool is_small = best == starts[0];
    if (!is_small && !(causes_.Explains(two, Predict(std::exp(best))) > 0.1)) best = starts[0];
    const double width = best == starts[0] ? std::max(4 * error, 0.5 * std::fabs(best)) : 0.26;
    double factor = std::exp(Smallest(best - width, best + width, error / 4, misfit_at));
    if (!(causes_.Explains(few_, Predict(factor)) > 0.1)) return;
    std::string text = Text(factor, error);
    // A constant that the rows allow is what was meant.
    const double misfit = causes_.Misfit(few_, Predict(factor));
    const auto elements = static_cast<double>(few_.size() * causes_.problem().channels);
    for (const KnownFactor& known : KnownFactors(scale)) {
      if (std::fabs(std::log(known.factor / factor)) > 0.05) continue;
      if (causes_.Misfit(few_, Predict(known.factor)) - misfit > 20 * misfit / elements) continue;
      factor = known.factor;
      text = known.text;
      break;
    }
    const std::string name = text.ends_with("not scaled") ? "scores not scaled" : "scale";
    causes_.Add({name, text, 1, 1}, Predict(factor));
  }

 private:
  std::function<std::optional<Mixture>(const SeenRow&, size_t)> Predict(double factor) const {
    return [this, factor](const SeenRow& row, size_t) -> std::optional<Mixture> {
      return Rescore(causes_.problem(), row, {.factor = factor, .cap = {}});
    };
  }

  // log(factor) and its standard error where the factor is nearly 1; 0, 0: it changes nothing.
  std::pair<double, double> FirstOrder() const {
    constexpr double kStep = 1e-5;
    double product = 0, square = 0;
    for (const size_t r : few_) {
      const SeenRow& row = causes_.rows()[r];
      const Mixture moved = Rescore(causes_.problem(), row, {.factor = 1 + kStep, .cap = {}});
      for (size_t c = 0; c < row.o.size(); ++c) {
        if (row.precision[c] == 0) continue;
        const double g = (moved.sum[c] / moved.share - row.o[c]) / kStep;
        product += g * row.precision[c] * row.error[c];
        square += g * row.precision[c] * g;
      }
    }
    if (!(square > 0)) return {0, 0};
    return {product / square, 1 / std::sqrt(square)};
  }

  std::string Text(double factor, double error) const {
    const double scale = causes_.c().scale;
    // No digit beyond three standard errors.
    const auto digits =
        std::clamp(static_cast<int>(std::floor(-std::log10(3 * error / factor))) + 1, 3, 7);
    return fmt::format(
        "the scores are multiplied by {:.{}g}: the scale is {:.{}g} in place of {:.6g}", factor,
        digits, factor * scale, digits, scale);
  }

  Causes& causes_;
  const std::vector<size_t> few_;
};

void AddCapAndBias(Causes* causes) {
  const AttentionCase& c = causes->c();
  const auto rescored = [&](Rescored change) {
    return [causes, change](const SeenRow& row, size_t) -> std::optional<Mixture> {
      return Rescore(causes->problem(), row, change);
    };
  };
  if (c.softcap) {
    causes->AddIfLikely({"softcap ignored", "the softcap is left out", 0}, rescored({.cap = 0.0}));
    causes->AddIfLikely({"softcap after the bias", "the softcap is that of unscaled scores", 0},
                        rescored({.cap = *c.softcap * c.scale}));
  }
  if (c.alibi || c.mask.array == MaskArrayKind::kAdditive) {
    const std::string what = c.alibi ? "ALiBi" : "the additive mask";
    causes->AddIfLikely(
        {c.alibi ? "ALiBi ignored" : "mask values ignored", what + " is left out", 0},
        rescored({.bias_times = 0, .cap = {}}));
    for (const auto& [times, text] :
         {std::pair(-1.0, "has the other sign"),
          std::pair(std::numbers::log2e, "is multiplied by log2(e)"),
          std::pair(std::numbers::ln2, "is multiplied by ln(2)"),
          std::pair(c.scale, "is scaled like the scores"), std::pair(2.0, "counts twice")}) {
      causes->AddIfLikely({"bias scaled", what + " " + text, 0, 0, 5},
                          rescored({.bias_times = times, .cap = {}}));
    }
  }
}

// Two ranges of keys, or equal ranges, whose shares are merged wrongly.
class Merges {
 public:
  explicit Merges(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    if (problem_.kv_len < 2) return;
    for (const Base& base : kBases) {
      AddTwo(base);
      AddEqual(base);
    }
    AddFree();
  }

 private:
  struct Base {
    double power;  // to which a range's sum of weights is raised
    const char* text;
  };
  static constexpr Base kBases[] = {
      {1 / std::numbers::ln2,
       "the log-sum-exps of partial results are in base 2, and are merged as natural ones"},
      {std::numbers::ln2,
       "the log-sum-exps of partial results are natural, and are merged as if in base 2"},
      {0, "partial results are averaged, whatever weight their keys have"}};

  // Ranges begin at `edges`, the first at 0.
  std::optional<Mixture> Merged(const SeenRow& row, const std::vector<int64_t>& edges,
                                double power) const {
    Mixture merged = {std::vector<double>(problem_.channels, 0), 0};
    for (size_t i = 0; i < edges.size(); ++i) {
      const bool is_last = i + 1 == edges.size();
      const int64_t to = is_last ? problem_.kv_len : edges[i + 1];
      Mixture part = {std::vector<double>(problem_.channels, 0), is_last ? row.sink_weight : 0};
      AddRange(problem_, row, edges[i], to, KeySet::kVisible, 1, &part);
      if (!(part.share > 0)) continue;
      // What all log-sum-exps have in common cancels.
      const double weight = std::pow(part.share, power);
      for (size_t c = 0; c < problem_.channels; ++c) {
        merged.sum[c] += weight * (part.sum[c] / part.share);
      }
      merged.share += weight;
    }
    if (!(merged.share > 0)) return std::nullopt;
    return merged;
  }

  // The first column of the second of two ranges that explain the most; 0: none does. predict(at):
  // the rows as the two ranges make them.
  template <typename Predict>
  int64_t BestBoundary(const Predict& predict) const {
    const int64_t n = problem_.kv_len;
    const int64_t step = n <= 256 ? 1 : std::max<int64_t>(problem_.step, n / 512);
    int64_t best = 0;
    double least = HUGE_VAL;
    for (int64_t at = step; at < n; at += step) {
      const double misfit = causes_.Misfit(problem_.screen, predict(at));
      if (misfit < least) least = misfit, best = at;
    }
    if (best == 0) return 0;
    const std::vector<size_t> all = causes_.AllRows();
    least = causes_.Misfit(all, predict(best));
    for (int64_t by = step / 2; by > 0; by /= 2) {
      for (const int64_t other : {best - by, best + by}) {
        if (other < 1 || other >= n) continue;
        const double misfit = causes_.Misfit(all, predict(other));
        if (misfit < least) least = misfit, best = other;
      }
    }
    return best;
  }

  void AddTwo(const Base& base) {
    const auto predict = [&](int64_t at) {
      return [this, at, power = base.power](const SeenRow& row, size_t) {
        return Merged(row, {0, at}, power);
      };
    };
    const int64_t n = problem_.kv_len;
    const int64_t best = BestBoundary(predict);
    if (best == 0) return;
    causes_.Add({"merge in a wrong base",
                 fmt::format("the keys below {} and from {} on have wrong shares: {}", best, best,
                             base.text),
                 1, 0, static_cast<double>(n)},
                predict(best));
  }

  void AddEqual(const Base& base) {
    const int64_t n = problem_.kv_len;
    std::set<int64_t> lengths;
    for (int64_t splits = 2; splits <= std::min<int64_t>(128, n); ++splits) {
      lengths.insert((n + splits - 1) / splits);
    }
    for (int64_t length = 16; length < n; length *= 2) lengths.insert(length);
    const auto edges_of = [&](int64_t length) {
      std::vector<int64_t> edges;
      for (int64_t at = 0; at < n; at += length) edges.push_back(at);
      return edges;
    };
    int64_t best = 0;
    double least = HUGE_VAL;
    const std::vector<size_t> few(
        problem_.screen.begin(),
        problem_.screen.begin() + std::min<std::ptrdiff_t>(4, std::ssize(problem_.screen)));
    for (const int64_t length : lengths) {
      // Two ranges have a boundary of their own.
      if (n / length > 1024 || 2 * length >= n) continue;
      const std::vector<int64_t> edges = edges_of(length);
      const double misfit = causes_.Misfit(
          few, [&](const SeenRow& row, size_t) { return Merged(row, edges, base.power); });
      if (misfit < least) least = misfit, best = length;
    }
    if (best == 0) return;
    const std::vector<int64_t> edges = edges_of(best);
    causes_.Add({"merge in a wrong base",
                 fmt::format("ranges of {} keys have wrong shares: {}", best, base.text), 1, 0,
                 static_cast<double>(lengths.size())},
                [&](const SeenRow& row, size_t) { return Merged(row, edges, base.power); });
  }

  // A boundary at which the two sides have other shares, in each row by a number of its own.
  void AddFree() {
    const int64_t n = problem_.kv_len;
    const auto predict = [&](int64_t at) {
      return [this, at](const SeenRow& row, size_t) -> std::optional<Mixture> {
        Mixture part = {std::vector<double>(problem_.channels, 0), 0};
        AddRange(problem_, row, 0, at, KeySet::kVisible, 1, &part);
        double product = 0, square = 0;
        for (size_t c = 0; c < problem_.channels; ++c) {
          const double g = part.sum[c] - part.share * row.o[c];
          product += g * row.precision[c] * row.error[c];
          square += g * row.precision[c] * g;
        }
        if (!(square > 0)) return std::nullopt;
        Mixture mixture = row.Right();
        for (size_t c = 0; c < problem_.channels; ++c) {
          mixture.sum[c] += product / square * (part.sum[c] - part.share * row.o[c]);
        }
        return mixture;
      };
    };
    const int64_t best = BestBoundary(predict);
    if (best == 0) return;
    causes_.Add({"shares of two ranges wrong",
                 fmt::format("the keys below {} and from {} on have wrong shares, in each row by "
                             "another factor: a merge, or a rescale of the running maximum",
                             best, best),
                 4, static_cast<double>(causes_.rows().size()), static_cast<double>(n)},
                predict(best));
  }

  Causes& causes_;
  const SeenProblem& problem_;
};

}  // namespace

void AddCausesOfNumbers(Causes* causes) {
  AddSinks(causes);
  AddZeroKeys(causes);
  AddFactors(causes);
  Scale(causes).Run();
  AddCapAndBias(causes);
  Merges(causes).Run();
}

}  // namespace kvcheck
