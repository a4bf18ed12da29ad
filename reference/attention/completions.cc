#include "reference/attention/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "reference/attention/attention_source.h"
#include "reference/attention/evaluate.h"
#include "reference/attention/row_reference.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

using Made = std::shared_ptr<const ExpectedSource>;
using InputEdit = std::function<void(TensorMap*)>;

constexpr double kSoftcaps[] = {30, 50};
// Elements of a mask array that are widened again for another question about positions: beyond,
// only what keeps the mask is asked.
constexpr int64_t kMostMaskElements = int64_t{1} << 22;
// Windows that are looked at again after one pass over all of them.
constexpr size_t kMostWindows = 3;

// A source over inputs of its own.
struct OwnedInputs {
  TensorMap inputs;
  std::unique_ptr<AttentionSource> source;
};

// A question that the asked one may stand for.
struct Hypothesis {
  std::string text;
  AttentionCase c;
  InputEdit edit;                 // changes the inputs; empty: they stay
  bool changes_operands = false;  // K or V are others
  int64_t picked_from = 1;
};

std::vector<double> NumbersOf(const Tensor& tensor) {
  std::vector<double> numbers(static_cast<size_t>(tensor.ElementCount()));
  DecodeTo(tensor, 0, numbers);
  return numbers;
}

std::string MaskText(const AttentionCase& c) { return "mask=" + Print(c.mask); }

class Completions {
 public:
  Completions(const AskedAttention& asked, const OutputInfo& output, const ObservedRow& row)
      : asked_(asked), output_(output), row_(row) {}

  std::vector<OtherReading> Take() && {
    const std::vector<Hypothesis> of_tensors = FromTensors();
    for (const Hypothesis& hypothesis : of_tensors) Try(hypothesis);
    if (of_tensors.size() > 1) TryTogether(of_tensors);
    if (output_.name == "lse") TryBase();
    const Hypothesis as_asked = {"", asked_.c, {}, false, 1};
    TryNumbers(as_asked);
    TryMasks(as_asked);
    TryWindows(as_asked);
    // Models that have the one often have the other. (What fits this row need not fit all.)
    for (const Hypothesis& hypothesis : of_tensors) {
      if (hypothesis.edit) continue;  // each would copy the inputs
      TryNumbers(hypothesis);
      TryMasks(hypothesis);
      TryWindows(hypothesis);
    }
    for (const double cap : kSoftcaps) {
      if (asked_.c.softcap) break;
      Hypothesis capped = as_asked;
      Say(&capped, fmt::format("softcap={}", PrintReal(cap)));
      capped.c.softcap = cap;
      TryWindows(capped);
    }
    return std::move(found_);
  }

 private:
  static void Say(Hypothesis* hypothesis, const std::string& what) {
    hypothesis->text += (hypothesis->text.empty() ? "" : " ") + what;
  }

  bool IsSpare(const std::string& name) const {
    return asked_.inputs.contains(name) && !InputSpecs(Case(asked_.c)).contains(name);
  }

  // ----- tensors that the case does not use

  std::vector<Hypothesis> FromTensors() const {
    std::vector<Hypothesis> all;
    const AttentionCase& c = asked_.c;
    const auto begin = [&](const std::string& text) {
      all.push_back({text, c, {}, false, 1});
      return &all.back();
    };
    if (IsSpare("sinks")) {
      const DType type = asked_.inputs.at("sinks").dtype;
      begin(fmt::format("sinks={} (input 'sinks' is not in the case)", ShortName(type)))->c.sinks =
          type;
    }
    if (IsSpare("mask") && c.mask.array == MaskArrayKind::kNone) {
      const Tensor& mask = asked_.inputs.at("mask");
      for (const MaskAxes axes :
           {MaskAxes::kT, MaskAxes::kLT, MaskAxes::kB1LT, MaskAxes::kBHLT, MaskAxes::kB11T}) {
        if (!mask.shape.SameExtents(
                MaskShape(axes, c.batch, c.query_heads, c.query_len, c.kv_len))) {
          continue;
        }
        Hypothesis with = {"", c, {}, false, 1};
        with.c.mask.axes = axes;
        with.c.mask.array =
            mask.dtype == DType::kBool ? MaskArrayKind::kBoolean : MaskArrayKind::kAdditive;
        if (mask.dtype != DType::kBool) with.c.mask.additive_dtype = mask.dtype;
        Say(&with, MaskText(with.c) + " (input 'mask' is not in the case)");
        all.push_back(std::move(with));
        break;
      }
    }
    if (IsSpare("alibi_slopes") && !c.alibi) {
      begin("alibi=yes (input 'alibi_slopes' is not in the case)")->c.alibi = true;
    }
    AddScales(&all);
    AddSequences(&all);
    return all;
  }

  // K and V as given times what lies beside them: in f64, which holds the products of their bits,
  // or rounded to the type of the queries, as kernels have it that dequantize before they multiply.
  void AddScales(std::vector<Hypothesis>* all) const {
    AddScales(DType::kFloat64, all);
    if (asked_.c.q != DType::kFloat64) AddScales(asked_.c.q, all);
  }

  void AddScales(DType type, std::vector<Hypothesis>* all) const {
    std::vector<std::string> letters, named;
    std::vector<InputEdit> edits;
    AttentionCase scaled = asked_.c;
    for (const std::string letter : {"k", "v"}) {
      KvFormat& format = letter == "k" ? scaled.k : scaled.v;
      const std::string name = letter + "_scale";
      if (!IsSpare(name) || !IsPlain(format)) continue;
      const int64_t dim = letter == "k" ? scaled.k_dim : scaled.v_dim;
      const int64_t count = asked_.inputs.at(name).ElementCount();
      const int64_t vectors = scaled.batch * scaled.kv_heads * scaled.kv_len;
      int64_t rows_each = 0;  // consecutive rows that share a number
      if (count == 1) {
        rows_each = vectors;
      } else if (count == scaled.kv_heads || count == scaled.batch * scaled.kv_heads) {
        rows_each = scaled.kv_len;
      } else if (count == vectors) {
        rows_each = 1;
      }
      if (rows_each == 0) continue;
      format = PlainFormat{type};
      letters.push_back(letter == "k" ? "K" : "V");
      named.push_back(fmt::format("'{}'", name));
      edits.push_back([letter, name, dim, count, rows_each, type](TensorMap* inputs) {
        Tensor& rows = inputs->at(letter);
        std::vector<double> values = NumbersOf(rows);
        const std::vector<double> factors = NumbersOf(inputs->at(name));
        for (size_t i = 0; i < values.size(); ++i) {
          const auto row = static_cast<int64_t>(i) / dim;
          values[i] *= factors[static_cast<size_t>(row / rows_each % count)];
        }
        Tensor product(type, rows.shape);
        EncodeFrom(values, type, product.bytes.data());
        rows = std::move(product);
      });
    }
    if (edits.empty()) return;
    const bool both = edits.size() == 2;
    Hypothesis with = {"", scaled, {}, true, 1};
    with.text =
        fmt::format("{} times {}{} (input{} {} {} not in the case)", fmt::join(letters, " and "),
                    both ? "their scales" : "its scale",
                    type == DType::kFloat64 ? "" : fmt::format(", rounded to {}", ShortName(type)),
                    both ? "s" : "", fmt::join(named, " and "), both ? "are" : "is");
    with.edit = [edits](TensorMap* inputs) {
      for (const InputEdit& edit : edits) edit(inputs);
    };
    all->push_back(std::move(with));
  }

  // Sequences one behind the other: each attends to itself only.
  void AddSequences(std::vector<Hypothesis>* all) const {
    const AttentionCase& c = asked_.c;
    const bool has_k = IsSpare("cu_seqlens_k"), has_q = IsSpare("cu_seqlens_q");
    if ((!has_k && !has_q) || c.mask.array != MaskArrayKind::kNone) return;
    const auto starts_of = [&](const char* own, const char* other, int64_t tokens) {
      const char* name = IsSpare(own) ? own : other;
      std::vector<double> starts = NumbersOf(asked_.inputs.at(name));
      const bool fits = starts.size() > 2 && starts.front() == 0 &&
                        std::is_sorted(starts.begin(), starts.end()) &&
                        starts.back() == static_cast<double>(tokens);
      return fits ? starts : std::vector<double>();
    };
    const std::vector<double> q = starts_of("cu_seqlens_q", "cu_seqlens_k", c.query_len);
    const std::vector<double> k = starts_of("cu_seqlens_k", "cu_seqlens_q", c.kv_len);
    if (q.empty() || q.size() != k.size()) return;
    Hypothesis packed = {"", c, {}, false, 1};
    packed.c.mask.array = MaskArrayKind::kBoolean;
    packed.c.mask.axes = MaskAxes::kLT;
    Say(&packed, fmt::format("{} sequences packed one behind the other (input '{}' is not in the "
                             "case)",
                             q.size() - 1, has_q ? "cu_seqlens_q" : "cu_seqlens_k"));
    packed.edit = [c, q, k](TensorMap* inputs) {
      Tensor mask(DType::kBool, MaskShape(MaskAxes::kLT, 1, 1, c.query_len, c.kv_len));
      std::fill(mask.bytes.begin(), mask.bytes.end(), std::byte{0});
      for (size_t i = 0; i + 1 < q.size(); ++i) {
        for (auto l = static_cast<int64_t>(q[i]); l < static_cast<int64_t>(q[i + 1]); ++l) {
          const auto first = mask.bytes.begin() + l * c.kv_len;
          std::fill(first + static_cast<int64_t>(k[i]), first + static_cast<int64_t>(k[i + 1]),
                    std::byte{1});
        }
      }
      (*inputs)["mask"] = std::move(mask);
    };
    all->push_back(std::move(packed));
  }

  void TryTogether(const std::vector<Hypothesis>& parts) {
    Hypothesis all = {"", asked_.c, {}, false, 1};
    std::vector<InputEdit> edits;
    for (const Hypothesis& part : parts) {
      if (part.c.sinks) all.c.sinks = part.c.sinks;
      if (part.c.alibi) all.c.alibi = true;
      if (part.c.mask.array != MaskArrayKind::kNone) all.c.mask = part.c.mask;
      if (part.changes_operands) all.c.k = part.c.k, all.c.v = part.c.v;
      all.changes_operands = all.changes_operands || part.changes_operands;
      if (part.edit) edits.push_back(part.edit);
      Say(&all, part.text);
    }
    if (!edits.empty()) {
      all.edit = [edits](TensorMap* inputs) {
        for (const InputEdit& edit : edits) edit(inputs);
      };
    }
    Try(all);
  }

  // ----- conventions

  void TryBase() {
    Hypothesis other = {"", asked_.c, {}, false, 1};
    const bool base2 = other.c.lse == LseKind::kBase2;
    other.c.lse = base2 ? LseKind::kNatural : LseKind::kBase2;
    other.text = base2 ? "lse=natural" : "lse=base2";
    Try(other);
  }

  void TryNumbers(const Hypothesis& base) {
    for (const double cap : kSoftcaps) {
      if (base.c.softcap) break;
      Hypothesis with = base;
      with.c.softcap = cap;
      Say(&with, fmt::format("softcap={}", PrintReal(cap)));
      Try(with);
    }
    const auto dk = static_cast<double>(base.c.k_dim), dv = static_cast<double>(base.c.v_dim);
    std::vector<double> tried = {base.c.scale};
    for (const double scale : {1 / std::sqrt(dk), 1.0, 1 / dk, 1 / std::sqrt(dv)}) {
      if (std::find(tried.begin(), tried.end(), scale) != tried.end()) continue;
      tried.push_back(scale);
      Hypothesis with = base;
      with.c.scale = scale;
      Say(&with, fmt::format("scale={}", PrintReal(scale)));
      Try(with);
    }
  }

  std::vector<Hypothesis> OtherAlignments(const Hypothesis& base) const {
    std::vector<Hypothesis> others;
    for (const CausalAlignment causal :
         {CausalAlignment::kBottomRight, CausalAlignment::kTopLeft, CausalAlignment::kNone}) {
      if (causal == base.c.mask.causal) continue;
      // With as many queries as keys both are one, and one query sees all keys in any case.
      const bool same = base.c.query_len == base.c.kv_len;
      if (same && causal == CausalAlignment::kTopLeft) continue;
      if (same && causal == CausalAlignment::kBottomRight &&
          base.c.mask.causal == CausalAlignment::kTopLeft) {
        continue;
      }
      Hypothesis with = base;
      with.c.mask.causal = causal;
      Say(&with, MaskText(with.c));
      others.push_back(std::move(with));
    }
    return others;
  }

  void TryMasks(const Hypothesis& base) {
    for (const Hypothesis& with : OtherAlignments(base)) Try(with);
  }

  // ----- windows: one pass from the newest key back gives the row under each of them

  void TryWindows(const Hypothesis& base) {
    if (base.c.mask.window || output_.name != "out" || base.changes_operands) return;
    TryWindowsUnder(base);
    if (base.c.mask.causal != CausalAlignment::kNone) return;
    for (Hypothesis with : OtherAlignments(base)) {
      with.text = base.text;
      TryWindowsUnder(with);
    }
  }

  void TryWindowsUnder(const Hypothesis& base) {
    const std::optional<TensorMap> inputs = InputsOf(base);
    OwnedQuestion owned;
    auto context = ContextOf(base);
    try {
      if (!context || !Ask(base, inputs ? *inputs : asked_.inputs, *context, &owned)) return;
    } catch (const Error&) {
      return;  // no such question
    }
    if (!owned.forced_score.empty() || !owned.masked_keys.empty()) return;
    const RowAnswer<double> answer = Evaluate<double>(owned.question);
    const int64_t position = QueryPosition(base.c, row_.query.query);
    const size_t dv = row_.got.size();
    std::vector<double> sum(dv, 0);
    double weight = owned.question.has_sink ? std::exp(owned.question.sink - answer.max) : 0;
    struct Fit {
      double square;
      int64_t window;
    };
    std::vector<Fit> fits;
    size_t j = owned.keys.size();
    int64_t tried = 0;
    // A window that is no longer than the oldest visible key needs hides something.
    const int64_t longest = owned.keys.empty() ? 0 : position - owned.keys.front();
    for (int64_t window = 1; window <= longest; ++window) {
      while (j > 0 && owned.keys[j - 1] > position - window) {
        --j;
        const double e = answer.e[j];
        const double* v = &row_.head.v.hi[static_cast<size_t>(owned.keys[j]) * dv];
        weight += e;
        for (size_t c = 0; c < dv; ++c) sum[c] += e * v[c];
      }
      if (window < kWindowStep || window % kWindowStep > 1 || !(weight > 0)) continue;
      ++tried;
      double square = 0;
      for (size_t c = 0; c < dv; ++c) {
        const double off = sum[c] / weight - row_.got[c];
        square += off * off;
      }
      if (std::isfinite(square)) fits.push_back({square, window});
    }
    std::sort(fits.begin(), fits.end(), [](const Fit& a, const Fit& b) {
      return std::pair(a.square, a.window) < std::pair(b.square, b.window);
    });
    if (fits.size() > kMostWindows) fits.resize(kMostWindows);
    for (const Fit& fit : fits) {
      Hypothesis with = base;
      with.c.mask.window = fit.window;
      with.picked_from = tried;
      Say(&with, MaskText(with.c));
      Try(with);
    }
  }

  // ----- one row under a hypothesis

  std::optional<TensorMap> InputsOf(const Hypothesis& hypothesis) const {
    if (!hypothesis.edit) return std::nullopt;
    TensorMap inputs = asked_.inputs;
    hypothesis.edit(&inputs);
    return inputs;
  }

  struct OwnContext {
    std::unique_ptr<Arithmetic> arithmetic;
    RowContext row;
  };

  std::optional<OwnContext> ContextOf(const Hypothesis& hypothesis) const {
    OwnContext context;
    try {
      context.arithmetic = std::make_unique<Arithmetic>(
          Resolve(asked_.arithmetic.declared, asked_.profile, hypothesis.c));
    } catch (const Error&) {
      return std::nullopt;  // contradicts the plan
    }
    context.row.c = &hypothesis.c;
    context.row.arithmetic = context.arithmetic.get();
    context.row.profile = asked_.profile;
    context.row.head = &row_.head;
    context.row.q = row_.q;
    return context;
  }

  bool Ask(const Hypothesis& hypothesis, const TensorMap& inputs, OwnContext& context,
           OwnedQuestion* owned) const {
    const AttentionCase& c = hypothesis.c;
    if (c.sinks) {
      const std::vector<double> sinks = NumbersOf(inputs.at("sinks"));
      if (static_cast<int64_t>(sinks.size()) != c.query_heads) return false;
      context.row.has_sink = true;
      context.row.sink = sinks[static_cast<size_t>(row_.query.query_head)];
    }
    const VisibleSet& visible = VisibleUnder(hypothesis, inputs);
    return MakeQuestion(context.row, visible, owned) == RowKind::kEvaluate;
  }

  // Masks are widened as a whole, each once. Errors: kUnsupported for one that is too large.
  const VisibleSet& VisibleUnder(const Hypothesis& hypothesis, const TensorMap& inputs) const {
    const AttentionCase& c = hypothesis.c;
    const std::string key =
        fmt::format("{} {} {}", Print(c.mask), c.alibi, hypothesis.edit ? hypothesis.text : "");
    if (const auto found = visible_.find(key); found != visible_.end()) return found->second;
    if (c.mask.array != MaskArrayKind::kNone && c.mask != asked_.c.mask) {
      const Shape shape = MaskShape(c.mask.axes, c.batch, c.query_heads, c.query_len, c.kv_len);
      if (shape.ElementCount() > kMostMaskElements && c.mask.array == asked_.c.mask.array) {
        throw Error(ErrorCode::kUnsupported, "the mask is too large to ask about once more");
      }
    }
    const MaskReader mask(c, asked_.profile, inputs);
    return visible_.emplace(key, mask.Visible(row_.query)).first->second;
  }

  bool Fits(const Hypothesis& hypothesis, const TensorMap& inputs) const {
    // K or V of its own: asked as a whole.
    if (hypothesis.changes_operands) return true;
    auto context = ContextOf(hypothesis);
    OwnedQuestion owned;
    if (!context) return false;
    // A row that would see no key is settled by the whole.
    if (!Ask(hypothesis, inputs, *context, &owned)) return true;
    const RowReference row = ComputeRow(context->row, owned, Precision::kDouble);
    if (!row.finite || row.unbounded) return false;
    const auto holds = [](double got, double value, double bound) {
      return std::fabs(got - value) <= bound;
    };
    if (output_.name == "lse") {
      return holds(row_.got[0], row.lse, row.lse_bound + row.lse_reference_bound);
    }
    for (size_t i = 0; i < row.channels.size(); ++i) {
      const ChannelReference& channel = row.channels[i];
      if (channel.undefined) continue;
      if (!holds(row_.got[i], channel.value, channel.bound + channel.reference_bound)) return false;
    }
    return true;
  }

  void Try(const Hypothesis& hypothesis) {
    try {
      Validate(Case(hypothesis.c));
      const std::optional<TensorMap> inputs = InputsOf(hypothesis);
      if (!Fits(hypothesis, inputs ? *inputs : asked_.inputs)) return;
    } catch (const Error&) {
      return;  // no such question
    }
    OtherReading reading;
    reading.name = reading.text = hypothesis.text;
    reading.picked_from = hypothesis.picked_from;
    reading.sources.push_back([asked = asked_, c = hypothesis.c, edit = hypothesis.edit]() -> Made {
      try {
        if (!edit) {
          return std::make_shared<AttentionSource>(c, asked.profile, asked.arithmetic.declared,
                                                   asked.inputs, &asked.source);
        }
        auto owned = std::make_shared<OwnedInputs>();
        owned->inputs = asked.inputs;
        edit(&owned->inputs);
        owned->source = std::make_unique<AttentionSource>(c, asked.profile,
                                                          asked.arithmetic.declared, owned->inputs);
        return Made(owned, owned->source.get());
      } catch (const Error&) {
        return nullptr;
      }
    });
    found_.push_back(std::move(reading));
  }

  const AskedAttention& asked_;
  const OutputInfo& output_;
  const ObservedRow& row_;
  std::vector<OtherReading> found_;
  mutable std::map<std::string, VisibleSet> visible_;  // by what decides it
};

}  // namespace

std::vector<OtherReading> CompletionsOf(const AskedAttention& asked, const OutputInfo& output,
                                        const ObservedRow& row) {
  return Completions(asked, output, row).Take();
}

}  // namespace kvcheck
