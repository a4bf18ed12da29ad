#include "reference/attention/other_readings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "reference/attention/attention_source.h"
#include "reference/attention/suspects.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using Made = std::shared_ptr<const ExpectedSource>;

// Heads that K or V may be read from in place of their own, one after another.
constexpr int64_t kMostOtherHeads = 8;

// A source with inputs of its own.
struct OwnedSource {
  TensorMap inputs;
  std::unique_ptr<AttentionSource> source;
};

// Row `to` of the result is row from(to) of the tensor, rows of `length` elements.
template <typename From>
void ArrangeRows(Tensor* tensor, int64_t length, const From& from) {
  const size_t bytes = static_cast<size_t>(length) * SizeInBytes(tensor->dtype);
  const int64_t rows = tensor->ElementCount() / length;
  std::vector<std::byte> arranged(tensor->bytes.size());
  for (int64_t to = 0; to < rows; ++to) {
    std::memcpy(arranged.data() + static_cast<size_t>(to) * bytes,
                tensor->bytes.data() + static_cast<size_t>(from(to)) * bytes, bytes);
  }
  tensor->bytes = std::move(arranged);
}

// The row of a (B, second, first) arrangement that stands where (B, first, second) has `row`.
int64_t Exchanged(int64_t row, int64_t first, int64_t second) {
  const int64_t batch = row / (first * second);
  const int64_t i = row / second % first;
  const int64_t j = row % second;
  return (batch * second + j) * first + i;
}

// Each (T, D) matrix, of `rows` x `columns`, as the transpose of what stands there: stored as
// (D, T), or written so and read as (T, D).
void Transpose(Tensor* tensor, int64_t rows, int64_t columns, bool back) {
  const int64_t size = rows * columns;
  ArrangeRows(tensor, 1, [&](int64_t to) {
    const int64_t matrix = to / size, at = to % size;
    if (back) return matrix * size + at % rows * columns + at / rows;
    return matrix * size + at % columns * rows + at / columns;
  });
}

class Readings {
 public:
  Readings(const AskedAttention& asked, const OutputInfo& output)
      : asked_(asked), output_(output) {}

  std::vector<OtherReading> Take() && {
    if (output_.name == "lse") AddBaseOfLse();
    AddKeptScores();
    AddMasks();
    AddNumbers();
    AddArrangements();
    AddHeads();
    AddDecoders();
    AddPlans();
    return std::move(readings_);
  }

 private:
  static OtherReading Named(std::string name, std::string text) {
    OtherReading reading;
    reading.name = std::move(name);
    reading.text = std::move(text);
    return reading;
  }

  // edit(case, profile): another question about the same inputs.
  template <typename Edit>
  void AddQuestion(std::string name, std::string text, Edit edit) {
    readings_.push_back(Named(std::move(name), std::move(text)));
    readings_.back().sources.push_back([asked = asked_, edit]() -> Made {
      AttentionCase c = asked.c;
      Profile profile = asked.profile;
      edit(&c, &profile);
      try {
        return std::make_shared<AttentionSource>(c, profile, asked.arithmetic.declared,
                                                 asked.inputs, &asked.source);
      } catch (const Error&) {
        return nullptr;  // no such question
      }
    });
  }

  // edit(inputs): the same question about other inputs.
  template <typename Edit>
  std::function<Made()> WithInputs(Edit edit) const {
    return [asked = asked_, edit = std::move(edit)]() -> Made {
      auto owned = std::make_shared<OwnedSource>();
      owned->inputs = asked.inputs;
      edit(&owned->inputs);
      owned->source = std::make_unique<AttentionSource>(asked.c, asked.profile,
                                                        asked.arithmetic.declared, owned->inputs);
      return Made(owned, owned->source.get());
    };
  }

  template <typename Edit>
  OtherReading& AddInputs(std::string name, std::string text, Edit edit) {
    readings_.push_back(Named(std::move(name), std::move(text)));
    readings_.back().sources.push_back(WithInputs(std::move(edit)));
    return readings_.back();
  }

  void AddBaseOfLse() {
    const bool base2 = asked_.c.lse == LseKind::kBase2;
    AddQuestion(base2 ? "natural lse" : "lse in base 2",
                base2 ? "lse were natural where the case asks for base 2"
                      : "lse were in base 2 where the case asks for the natural one",
                [](AttentionCase* c, Profile*) {
                  c->lse = c->lse == LseKind::kBase2 ? LseKind::kNatural : LseKind::kBase2;
                });
  }

  // A mask's large number loses the scores in a narrow type alone.
  void AddKeptScores() {
    if (asked_.c.mask.array != MaskArrayKind::kAdditive) return;
    const Plan& plan = asked_.arithmetic.plan;
    if (!plan.op || plan.op->dtype == DType::kFloat64) return;
    OtherReading reading = Named(
        "scores kept beside a large mask",
        fmt::format("the scores were kept beside the large finite numbers of the mask, which {} "
                    "loses: the kernel computes in a wider type than its plan says",
                    Name(plan.op->dtype)));
    reading.is_sufficient = true;
    reading.sources.push_back([asked = asked_]() -> Made {
      Plan wide = asked.arithmetic.declared;
      wide.op = asked.arithmetic.plan.op;
      wide.op->dtype = DType::kFloat64;
      wide.scores = DType::kFloat64;
      try {
        return std::make_shared<AttentionSource>(asked.c, asked.profile, wide, asked.inputs,
                                                 &asked.source);
      } catch (const Error&) {
        return nullptr;  // contradicts the case
      }
    });
    readings_.push_back(std::move(reading));
  }

  void AddMasks() {
    const MaskSpec& mask = asked_.c.mask;
    if (mask.causal != CausalAlignment::kNone) {
      if (asked_.c.query_len != asked_.c.kv_len) {
        const bool top_left = mask.causal == CausalAlignment::kTopLeft;
        AddQuestion("causal alignment",
                    top_left ? "the causal mask were bottom-right in place of top-left"
                             : "the causal mask were top-left in place of bottom-right",
                    [top_left](AttentionCase* c, Profile*) {
                      c->mask.causal =
                          top_left ? CausalAlignment::kBottomRight : CausalAlignment::kTopLeft;
                    });
      }
      AddQuestion("causal mask ignored", "the causal mask were not applied",
                  [](AttentionCase* c, Profile*) { c->mask.causal = CausalAlignment::kNone; });
    }
    if (mask.window) {
      AddQuestion("window ignored", "the window were not applied",
                  [](AttentionCase* c, Profile*) { c->mask.window.reset(); });
    }
    if (!mask.left_padding.empty()) {
      AddQuestion("padding ignored", "left padding took part",
                  [](AttentionCase* c, Profile*) { c->mask.left_padding.clear(); });
    }
    if (mask.array != MaskArrayKind::kNone) {
      AddQuestion("mask array ignored", "the mask array were not applied",
                  [](AttentionCase* c, Profile*) { c->mask.array = MaskArrayKind::kNone; });
    }
    if (mask.array == MaskArrayKind::kBoolean) {
      AddInputs("boolean mask inverted", "the boolean mask were inverted: true for hidden",
                [](TensorMap* inputs) {
                  for (std::byte& seen : inputs->at("mask").bytes) {
                    seen = seen == std::byte{0} ? std::byte{1} : std::byte{0};
                  }
                });
    }
  }

  void AddNumbers() {
    if (asked_.c.sinks) {
      AddQuestion("sinks ignored", "the sinks were left out",
                  [](AttentionCase* c, Profile*) { c->sinks.reset(); });
    }
    if (asked_.c.softcap) {
      AddQuestion("softcap ignored", "the softcap were left out",
                  [](AttentionCase* c, Profile*) { c->softcap.reset(); });
    }
    if (asked_.c.alibi) {
      AddQuestion("ALiBi ignored", "ALiBi were left out",
                  [](AttentionCase* c, Profile*) { c->alibi = false; });
    }
    if (asked_.c.scale != 1) {
      AddQuestion("scores not scaled", "the scores were not scaled",
                  [](AttentionCase* c, Profile*) { c->scale = 1; });
    }
  }

  // As the tensors stand in memory: only of formats whose rows are numbers.
  void AddArrangements() {
    const AttentionCase& c = asked_.c;
    if (!IsPlain(c.k) || !IsPlain(c.v)) return;
    const auto add_transposed = [&](const std::string& input, int64_t dim) {
      if (c.kv_len == 1 || dim == 1) return;
      const auto edit = [input, rows = c.kv_len, dim](bool back) {
        return [input, rows, dim, back](TensorMap* inputs) {
          Transpose(&inputs->at(input), rows, dim, back);
        };
      };
      const std::string upper = input == "k" ? "K" : "V";
      OtherReading& reading =
          AddInputs(upper + " transposed", upper + " were transposed, (D, T) in place of (T, D)",
                    edit(false));
      if (c.kv_len != dim) reading.sources.push_back(WithInputs(edit(true)));
    };
    add_transposed("k", c.k_dim);
    add_transposed("v", c.v_dim);
    const auto exchange = [](TensorMap* inputs, const char* input, int64_t heads, int64_t tokens,
                             int64_t dim) {
      ArrangeRows(&inputs->at(input), dim,
                  [&](int64_t to) { return Exchanged(to, heads, tokens); });
    };
    const AttentionCase* asked = &asked_.c;
    const auto exchange_kv = [exchange, asked](TensorMap* inputs) {
      exchange(inputs, "k", asked->kv_heads, asked->kv_len, asked->k_dim);
      exchange(inputs, "v", asked->kv_heads, asked->kv_len, asked->v_dim);
    };
    const auto exchange_q = [exchange, asked](TensorMap* inputs) {
      exchange(inputs, "q", asked->query_heads, asked->query_len, asked->k_dim);
    };
    const bool kv = c.kv_heads > 1 && c.kv_len > 1;
    const bool q = c.query_heads > 1 && c.query_len > 1;
    const auto other_row = [heads = c.query_heads, tokens = c.query_len](int64_t row) {
      return Exchanged(row, heads, tokens);
    };
    const std::string axes = "axes exchanged";
    if (kv) AddInputs(axes, "k and v had the axes B,T,H,D in place of B,H,T,D", exchange_kv);
    if (q) AddInputs(axes, "q had the axes B,L,H,D in place of B,H,L,D", exchange_q);
    if (q && output_.name == "out") {
      AddInputs(axes, "out had the axes B,L,H,D in place of B,H,L,D", [](TensorMap*) {
      }).observed_row = other_row;
      AddInputs(axes, "q and out had the axes B,L,H,D in place of B,H,L,D", exchange_q)
          .observed_row = other_row;
    }
    if (q && kv) {
      const auto exchange_all = [exchange_q, exchange_kv](TensorMap* inputs) {
        exchange_q(inputs), exchange_kv(inputs);
      };
      AddInputs(axes, "q, k and v had the axes B,T,H,D in place of B,H,T,D", exchange_all);
      if (output_.name == "out") {
        AddInputs(axes, "q, k, v and out had the axes B,T,H,D in place of B,H,T,D", exchange_all)
            .observed_row = other_row;
      }
    }
  }

  // Every tensor of K (or V) moves by whole heads.
  void AddHeads() {
    const AttentionCase& c = asked_.c;
    for (const char* letter : {"k", "v"}) {
      if (c.kv_heads == 1) return;
      const std::string upper = letter[0] == 'k' ? "K" : "V";
      OtherReading reading;
      reading.name = "wrong " + upper + " head";
      reading.text = upper + " alone were read from another key/value head";
      for (int64_t by = 1; by < std::min(c.kv_heads, kMostOtherHeads); ++by) {
        reading.sources.push_back(WithInputs([letter, by, asked = &asked_.c](TensorMap* inputs) {
          const int64_t heads = asked->kv_heads;
          for (const auto& [name, spec] : InputSpecs(Case(*asked))) {
            if (name != letter && !name.starts_with(std::string(letter) + "_")) continue;
            Tensor& tensor = inputs->at(name);
            const int64_t slice = tensor.ElementCount() / (asked->batch * heads);
            ArrangeRows(&tensor, slice,
                        [&](int64_t to) { return to / heads * heads + (to % heads + by) % heads; });
          }
        }));
      }
      readings_.push_back(std::move(reading));
    }
  }

  void AddDecoders() {
    if (IsPlain(asked_.c.k) && IsPlain(asked_.c.v)) return;
    for (const DecodeRounding decode :
         {DecodeRounding::kExact, DecodeRounding::kTwoRoundings, DecodeRounding::kOneRounding}) {
      if (decode == asked_.profile.decode) continue;
      Profile other = asked_.profile;
      other.decode = decode;
      AddQuestion("decode roundings",
                  "the codes were decoded by the profile '" + Print(other) + "'",
                  [decode](AttentionCase*, Profile* profile) { profile->decode = decode; });
    }
  }

  void AddPlans() {
    for (Suspect& suspect :
         Suspects(asked_.arithmetic.declared, asked_.arithmetic.plan, asked_.profile, asked_.c)) {
      OtherReading reading;
      reading.declared = std::move(suspect.change);
      if (suspect.outputs_are) {
        reading.is_sufficient = true;
        reading.observed_is = [type = *suspect.outputs_are](double value) {
          return std::isnan(value) || RoundTo(type, value) == value;
        };
      }
      reading.sources.push_back([asked = asked_, plan = std::move(suspect.plan)]() -> Made {
        try {
          return std::make_shared<AttentionSource>(asked.c, asked.profile, plan, asked.inputs,
                                                   &asked.source);
        } catch (const Error&) {
          return nullptr;  // contradicts the case
        }
      });
      readings_.push_back(std::move(reading));
    }
  }

  const AskedAttention& asked_;
  const OutputInfo& output_;
  std::vector<OtherReading> readings_;
};

}  // namespace

std::vector<OtherReading> ReadingsOf(const AskedAttention& asked, const OutputInfo& output) {
  return Readings(asked, output).Take();
}

}  // namespace kvcheck
