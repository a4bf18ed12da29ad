// Planted faults are named with their numbers and places; what has no name stays without one, and a
// right answer is not asked.

#include "reference/attention/causes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "reference/judge/judge.h"
#include "reference/judge/statistics.h"
#include "reference/numerics/convert.h"
#include "tests/reference/attention/judge_run.h"

namespace kvcheck {
namespace {

// An online softmax in blocks of 64 keys with f32 accumulators.
Plan KernelPlan(int splits = 1) {
  return ParsePlan(
      "qk=f32:lanes:8:fma pv=f32:sequential:fma:chained l=f32:lanes:8 op=f32 scale_roundings=1 "
      "prescale=none scores=f32 bias_roundings=0 exp=exp exp_error=2^-23 exp_floor=2^-126 "
      "lazy_rescale=0 block=64 sink=first p=bf16 p_scale=1 p_normalised=no l_from=unrounded "
      "normalise=divide flush=no saturate=no tanh_error=2^-22 log_error=2^-22 " +
      (splits > 1 ? "merge=lse partial=f32 splits=" + std::to_string(splits)
                  : std::string("merge=none splits=1")));
}

struct Planted {
  AttentionCase c;
  TensorMap inputs;
  AttentionRules rules;
};

const char kLongCase[] = "hq=8 hkv=2 l=3 t=200 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:7";

// What a kernel with the fault answers, judged as it was asked.
// Of a key in any row of the case without a mask.
double LargestWeight(int64_t key) {
  const Case any = ParseCase(std::string("attention ") + kLongCase);
  const auto& c = std::get<AttentionCase>(any);
  const TensorMap inputs = GenerateInputs(any, {});
  const auto d = static_cast<size_t>(c.k_dim);
  std::vector<double> q(inputs.at("q").bytes.size() / 2), k(inputs.at("k").bytes.size() / 2);
  DecodeTo(inputs.at("q"), 0, q);
  DecodeTo(inputs.at("k"), 0, k);
  double largest = 0;
  for (size_t row = 0; row < q.size() / d; ++row) {
    const size_t head =
        row / static_cast<size_t>(c.query_len) / static_cast<size_t>(c.query_heads / c.kv_heads);
    double sum = 0, own = 0;
    for (int64_t t = 0; t < c.kv_len; ++t) {
      double dot = 0;
      const size_t at = (head * static_cast<size_t>(c.kv_len) + static_cast<size_t>(t)) * d;
      for (size_t i = 0; i < d; ++i) dot += q[row * d + i] * k[at + i];
      sum += std::exp(dot * c.scale);
      if (t == key) own = std::exp(dot * c.scale);
    }
    largest = std::max(largest, own / sum);
  }
  return largest;
}

OutputVerdict JudgePlanted(const std::string& terms, const std::function<void(Planted*)>& plant,
                           int splits = 1) {
  const Case any = ParseCase("attention " + terms + " " + kLongCase);
  Planted planted = {std::get<AttentionCase>(any), GenerateInputs(any, Profile()), {}};
  const AttentionCase asked = planted.c;
  const TensorMap inputs = planted.inputs;
  plant(&planted);
  const Plan plan = KernelPlan(splits);
  SimulatedKernel kernel(plan, Profile(), planted.rules);
  const TensorMap answer = Answer(&kernel, planted.c, planted.inputs);
  const AttentionSource source(asked, Profile(), plan, inputs);
  JudgeOptions options;
  return Judge(source, MemorySink(answer), options).outputs[0];
}

void ExpectNamed(const OutputVerdict& out, const std::string& cause, const std::string& text) {
  ASSERT_EQ(out.outcome, Outcome::kFail) << cause;
  EXPECT_EQ(out.cause, cause) << (out.hints.empty() ? "" : out.hints[0]);
  ASSERT_FALSE(out.hints.empty());
  EXPECT_NE(out.hints[0].find(text), std::string::npos) << out.hints[0];
  ASSERT_TRUE(out.seen.has_value());
  EXPECT_GE(out.seen->explained, 0.99);
}

std::function<void(Planted*)> OnKeys(std::function<int(const QueryIndex&, int32_t key)> copies) {
  return [copies](Planted* planted) {
    planted->rules.visible = [copies](const AttentionCase&, const QueryIndex& query,
                                      VisibleSet* set) {
      std::vector<int32_t> keys;
      for (const int32_t key : set->keys)
        keys.insert(keys.end(), static_cast<size_t>(copies(query, key)), key);
      set->keys = keys;
    };
  };
}

// A key of zeros beside scores of 704 weighs next to the least that a double holds: a thousand
// times the number of them that outweigh such a row is infinite.
TEST(Causes, CountKeysOfZerosBesideLargeScores) {
  const AttentionCase c = CaseOf(
      "attention hq=1 hkv=1 l=2 t=8 d=1 dv=16 q=f64 k=f64 v=f64 out=f64 scale=1 data=gauss:3");
  TensorMap inputs = GenerateInputs(Case(c), {});
  for (int64_t i = 0; i < c.query_len; ++i) inputs.at("q").As<double>()[i] = 1;
  for (int64_t i = 0; i < c.kv_len; ++i) {
    inputs.at("k").As<double>()[i] = 704 + 0.01 * static_cast<double>(i);
  }
  const Plan plan = ParsePlan("plain_f32");
  SimulatedKernel kernel(plan, {});
  TensorMap answer = Answer(&kernel, c, inputs);
  answer.at("out").As<double>()[3] *= 1.5;
  const Verdict verdict =
      Judge(AttentionSource(c, {}, plan, inputs), MemorySink(std::move(answer)));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.outputs[0].counts.failed, 1);
}

TEST(Causes, NameARangeThatIsLostWithItsPageAndItsHeads) {
  const OutputVerdict out = JudgePlanted("", OnKeys([](const QueryIndex& query, int32_t key) {
                                           const bool has_it =
                                               query.query_head == 3 || query.query_head == 7;
                                           return has_it && key >= 128 && key < 192 ? 0 : 1;
                                         }));
  ExpectNamed(out, "keys missing",
              "keys 128 to 191 (page 2 of 4 pages of 64) are left out in heads 3, 7");
}

TEST(Causes, NameARangeThatIsCountedTwice) {
  ExpectNamed(JudgePlanted("", OnKeys([](const QueryIndex&, int32_t key) {
                             return key >= 37 && key < 59 ? 2 : 1;
                           })),
              "keys counted twice", "keys 37 to 58 are counted twice");
}

TEST(Causes, NameAWindowThatIsOffByAnyNumber) {
  const std::string window = "mask=causal_bottom_right+window:50";
  ExpectNamed(JudgePlanted(window, [](Planted* planted) { planted->c.mask.window = 67; }),
              "window off", "the window is 17 keys too long: 67 in place of 50");
  ExpectNamed(JudgePlanted(window, [](Planted* planted) { planted->c.mask.window = 49; }),
              "first key missing", "the window is one key too short: 49 in place of 50");
  ExpectNamed(JudgePlanted(window, [](Planted* planted) { planted->c.mask.window.reset(); }),
              "window ignored", "the window is not applied");
}

TEST(Causes, NameTheEdgesOfACausalMask) {
  ExpectNamed(JudgePlanted(
                  "mask=causal_top_left",
                  [](Planted* planted) { planted->c.mask.causal = CausalAlignment::kBottomRight; }),
              "causal alignment", "bottom-right in place of top-left");
  const auto drop_last = [](int64_t n) {
    return [n](Planted* planted) {
      planted->rules.visible = [n](const AttentionCase&, const QueryIndex&, VisibleSet* set) {
        set->keys.resize(set->keys.size() - static_cast<size_t>(n));
      };
    };
  };
  const std::string causal = "mask=causal_bottom_right";
  ExpectNamed(JudgePlanted(causal, drop_last(1)), "last key missing", "the last visible key");
  ExpectNamed(JudgePlanted(causal, drop_last(5)), "last keys missing", "the last 5 keys");
}

TEST(Causes, NameAPageOfAnotherSequence) {
  const OutputVerdict out = JudgePlanted("b=2", [](Planted* planted) {
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = planted->inputs.at(name);
      const size_t row = 64 * SizeInBytes(tensor.dtype);
      for (size_t head = 0; head < 2; ++head) {
        std::memcpy(&tensor.bytes[(head * 200 + 32) * row],
                    &tensor.bytes[((head + 2) * 200 + 96) * row], 16 * row);
      }
    }
  });
  ExpectNamed(out, "page replaced",
              "keys 32 to 47) is read from page 6 of batch row 1 in batch row 0");
}

TEST(Causes, NameKeysOfZeros) {
  ExpectNamed(JudgePlanted("",
                           [](Planted* planted) {
                             for (const char* name : {"k", "v"}) {
                               Tensor& tensor = planted->inputs.at(name);
                               const size_t head = 200 * 64 * SizeInBytes(tensor.dtype);
                               std::vector<std::byte> longer;
                               for (size_t at = 0; at < tensor.bytes.size(); at += head) {
                                 longer.insert(longer.end(), &tensor.bytes[at],
                                               &tensor.bytes[at] + head);
                                 longer.resize(longer.size() + head / 200 * 24, std::byte{0});
                               }
                               tensor.bytes = longer;
                               tensor.shape.axes[2].extent = 224;
                             }
                             planted->c.kv_len = 224;
                           }),
              "keys of zeros", "24 keys of zeros take part");
}

TEST(Causes, NameSinks) {
  ExpectNamed(JudgePlanted("sinks=f32", [](Planted* planted) { planted->c.sinks.reset(); }),
              "sinks ignored", "the sinks are left out");
  ExpectNamed(JudgePlanted("sinks=f32",
                           [](Planted* planted) {
                             std::vector<std::byte>& sinks = planted->inputs.at("sinks").bytes;
                             std::rotate(sinks.begin(), sinks.begin() + 4, sinks.end());
                           }),
              "sink of another head", "the sink of the next head");
}

TEST(Causes, NameAScaleAndItsConstants) {
  const auto scaled = [](double factor) {
    return [factor](Planted* planted) { planted->c.scale *= factor; };
  };
  ExpectNamed(JudgePlanted("", scaled(1.02)), "scale", "the scores are multiplied by 1.02");
  ExpectNamed(JudgePlanted("", scaled(std::numbers::sqrt2)), "scale", "sqrt(2)");
  ExpectNamed(JudgePlanted("", scaled(std::numbers::ln2)), "scale", "exp2 without its log2(e)");
  ExpectNamed(JudgePlanted("", scaled(8)), "scores not scaled", "the scores are not scaled");
}

TEST(Causes, NameAMergeInTheWrongBaseAndItsBoundary) {
  ExpectNamed(JudgePlanted(
                  "",
                  [](Planted* planted) {
                    planted->rules.merge_weight = [](size_t, size_t, double weight) {
                      return std::pow(weight, std::numbers::log2e);
                    };
                  },
                  2),
              "merge in a wrong base",
              "the keys below 100 and from 100 on have wrong shares: the log-sum-exps of partial "
              "results are in base 2");
}

TEST(Causes, NameOtherMasks) {
  ExpectNamed(JudgePlanted("b=2 mask=bool:B1LT",
                           [](Planted* planted) {
                             planted->rules.mask_query = [](const AttentionCase&,
                                                            QueryIndex query) {
                               query.batch = (4 * query.batch + query.query_head) % 2;
                               return query;
                             };
                           }),
              "mask of another batch row", "b=0 hq=1: that of 1");
  ExpectNamed(JudgePlanted("mask=bool:LT",
                           [](Planted* planted) {
                             planted->rules.visible = [](const AttentionCase& c, const QueryIndex&,
                                                         VisibleSet* set) {
                               std::vector<int32_t> keys;
                               for (int32_t key = 0; key < c.kv_len; ++key) {
                                 if (key < 96 ||
                                     std::binary_search(set->keys.begin(), set->keys.end(), key)) {
                                   keys.push_back(key);
                                 }
                               }
                               set->keys = keys;
                             };
                           }),
              "mask ignored in columns", "the mask is not applied to columns below ");
}

TEST(Causes, NameSiblingsOfATokenTree) {
  // Three drafts after the root at column 197: the first two are children of it, the third of the
  // second.
  const auto tree = [](Planted* planted, bool faulty) {
    std::byte* mask = planted->inputs.at("mask").bytes.data();
    for (size_t l = 0; l < 3; ++l) {
      for (size_t key = 0; key < 200; ++key) {
        const bool is_draft = key >= 197;
        const bool own = key == 197 + l;
        const bool parent = l == 2 && key == 198;
        const bool sibling = faulty && l == 1 && key == 197;
        mask[l * 200 + key] = std::byte{!is_draft || own || parent || sibling};
      }
    }
  };
  const Case any = ParseCase(std::string("attention mask=bool:LT ") + kLongCase);
  Planted planted = {std::get<AttentionCase>(any), GenerateInputs(any, Profile()), {}};
  tree(&planted, false);
  const TensorMap asked = planted.inputs;
  tree(&planted, true);
  const Plan plan = KernelPlan();
  SimulatedKernel kernel(plan, Profile());
  const TensorMap answer = Answer(&kernel, planted.c, planted.inputs);
  const AttentionSource source(planted.c, Profile(), plan, asked);
  const OutputVerdict out = Judge(source, MemorySink(answer)).outputs[0];
  ExpectNamed(out, "hidden pairs visible",
              "one pair that the mask hides is seen: query 1 key 197 (a sibling)");
}

TEST(Causes, NameWhatIsReadFromElsewhere) {
  ExpectNamed(JudgePlanted("",
                           [](Planted* planted) {
                             planted->inputs.at("v").bytes = planted->inputs.at("k").bytes;
                           }),
              "V read from K", "V is read from K");
  ExpectNamed(JudgePlanted("",
                           [](Planted* planted) {
                             planted->rules.head_map = [](const AttentionCase& c, int64_t head) {
                               return head % c.kv_heads;
                             };
                           }),
              "other key/value head", "h mod Hkv in place of h / (Hq / Hkv)");
  const auto stale = [](const char* name) {
    return [name](Planted* planted) {
      Tensor& tensor = planted->inputs.at(name);
      const size_t row = 64 * SizeInBytes(tensor.dtype);
      for (size_t head = 0; head < 2; ++head) {
        std::memcpy(&tensor.bytes[(head * 200 + 77) * row], &tensor.bytes[(head * 200 + 11) * row],
                    row);
      }
    };
  };
  ExpectNamed(JudgePlanted("", stale("v")), "V row wrong",
              "V of key 77 is not what the case holds (a stale or never written row): off by ");
  ExpectNamed(JudgePlanted("", stale("k")), "weight of a key wrong",
              "the scores of key 77 are not those of the case");
}

// Rows [from, to) of every head of K or V, or both, hold numbers that stand in no tensor of the
// case.
std::function<void(Planted*)> Stale(const std::vector<const char*>& names, int64_t from, int64_t to,
                                    int64_t kv_len = 200, double size = 1) {
  return [=](Planted* planted) {
    uint64_t state = 1;
    for (const char* name : names) {
      Tensor& tensor = planted->inputs.at(name);
      std::vector<double> values(static_cast<size_t>(tensor.ElementCount()));
      DecodeTo(tensor, 0, values);
      for (size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<int64_t>(i / 64) % kv_len;
        if (row < from || row >= to) continue;
        // About normal: the sum of twelve even numbers.
        values[i] = -6;
        for (int n = 0; n < 12; ++n) {
          state = state * 6364136223846793005U + 1442695040888963407U;
          values[i] += static_cast<double>(state >> 11) * 0x1p-53;
        }
        values[i] *= size;
      }
      EncodeFrom(values, tensor.dtype, tensor.bytes.data(), ConvertRule());
    }
  };
}

TEST(Causes, NameRangesOfVThatStandNowhere) {
  // Of 12 rows a head: a page of more keys than rows, and a range of fewer.
  ExpectNamed(JudgePlanted("", Stale({"v"}, 64, 80)), "V rows wrong",
              "V of keys 64 to 79 (page 4 of 13 pages of 16) is not what the case holds (stale or "
              "never written rows)");
  ExpectNamed(JudgePlanted("", Stale({"v"}, 101, 107)), "V rows wrong",
              "V of keys 101 to 106 is not what the case holds");
  ExpectNamed(JudgePlanted("", Stale({"v"}, 64, 128)), "V rows wrong",
              "V of keys 64 to 127 (page 1 of 4 pages of 64) is not what the case holds");
}

TEST(Causes, NameRangesOfKThatStandNowhere) {
  ExpectNamed(JudgePlanted("", Stale({"k"}, 64, 80)), "K rows wrong",
              "the scores of keys 64 to 79 (page 4 of 13 pages of 16) are not those of the case");
  ExpectNamed(JudgePlanted("", Stale({"k"}, 31, 40)), "K rows wrong",
              "the scores of keys 31 to 39 are not those of the case");
}

TEST(Causes, NamePagesThatStandNowhere) {
  const OutputVerdict out = JudgePlanted("", Stale({"k", "v"}, 96, 112));
  // The lost rows explain only a part of the errors, so that no cause is named.
  EXPECT_EQ(out.cause, "");
  ASSERT_FALSE(out.hints.empty());
  EXPECT_EQ(out.hints[0].rfind("not explained as a whole: it looks as if ", 0), 0U);
  EXPECT_NE(
      out.hints[0].find("keys 96 to 111 (page 6 of 13 pages of 16) are not read: what stands "
                        "in the place of their V, or of K and V, is in no tensor of the case"),
      std::string::npos)
      << out.hints[0];
  const auto zeros = [](Planted* planted) {
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = planted->inputs.at(name);
      const size_t row = 64 * SizeInBytes(tensor.dtype);
      for (size_t head = 0; head < 2; ++head) {
        std::memset(&tensor.bytes[(head * 200 + 96) * row], 0, 16 * row);
      }
    }
  };
  ExpectNamed(JudgePlanted("", zeros), "keys are zeros",
              "K and V of keys 96 to 111 (page 6 of 13 pages of 16) are read as zeros");
}

// As many free numbers as there are equations explain anything: of heads of one row each, only what
// is missing can be said, and nothing where what stands there outweighs it.
TEST(Causes, SayOfStaleRowsNoMoreThanRowsCanTell) {
  const Case any =
      ParseCase("attention hq=2 hkv=2 l=1 t=200 d=64 q=bf16 k=bf16 v=bf16 out=bf16 data=gauss:7");
  for (const double size : {1.0, 30.0}) {
    Planted planted = {std::get<AttentionCase>(any), GenerateInputs(any, Profile()), {}};
    const TensorMap inputs = planted.inputs;
    Stale({"v"}, 64, 80, 200, size)(&planted);
    SimulatedKernel kernel(KernelPlan(), Profile(), planted.rules);
    const TensorMap answer = Answer(&kernel, planted.c, planted.inputs);
    const AttentionSource source(planted.c, Profile(), KernelPlan(), inputs);
    const OutputVerdict out = Judge(source, MemorySink(answer)).outputs[0];
    EXPECT_EQ(out.outcome, Outcome::kFail);
    EXPECT_EQ(out.cause, "") << out.hints[0];
  }
}

TEST(Causes, DoNotTakeArithmeticForStaleRows) {
  // A denominator of eight bits: a factor of each row.
  const auto factor = [](const QueryIndex& query) {
    return 1 + 0x1p-8 * std::sin(static_cast<double>(query.query_head * 31 + 7 * query.query));
  };
  const OutputVerdict denominator = JudgePlanted("", [factor](Planted* planted) {
    planted->rules.output = [factor](const AttentionCase&, const QueryIndex& query,
                                     std::span<double> out) {
      for (double& value : out) value *= factor(query);
    };
  });
  EXPECT_EQ(denominator.cause.find("rows wrong"), std::string::npos) << denominator.hints[0];
  const OutputVerdict weights = JudgePlanted("", [](Planted* planted) {
    planted->rules.p_step = [](double p) {
      return p > 0 ? std::exp2(std::round(std::log2(p))) : p;
    };
  });
  EXPECT_EQ(weights.outcome, Outcome::kFail);
  EXPECT_EQ(weights.cause.find("rows wrong"), std::string::npos) << weights.hints[0];
  // Keys here and there that are lost.
  const OutputVerdict lost = JudgePlanted(
      "", OnKeys([](const QueryIndex& query, int32_t key) {
        return (key * 7919) % 11 == 3 || (key * 104729) % 23 == query.batch + 5 ? 0 : 1;
      }));
  EXPECT_EQ(lost.cause.find("rows wrong"), std::string::npos) << lost.hints[0];
}

void ExchangeRows(Planted* planted, const char* name, size_t a, size_t b, size_t count) {
  Tensor& tensor = planted->inputs.at(name);
  const size_t row = 64 * SizeInBytes(tensor.dtype);
  for (size_t head = 0; head < 2; ++head) {
    std::swap_ranges(&tensor.bytes[(head * 200 + a) * row],
                     &tensor.bytes[(head * 200 + a) * row] + count * row,
                     &tensor.bytes[(head * 200 + b) * row]);
  }
}

TEST(Causes, NamePagesThatAreExchanged) {
  // K and V together matter only where a window hides one of the two.
  ExpectNamed(JudgePlanted("mask=causal_bottom_right+window:90",
                           [](Planted* planted) {
                             for (const char* name : {"k", "v"}) {
                               ExchangeRows(planted, name, 32, 144, 16);
                             }
                           }),
              "page replaced", "keys 144 to 159) is read from page 2 of the same sequence");
  for (const char* name : {"k", "v"}) {
    ExpectNamed(
        JudgePlanted("", [name](Planted* planted) { ExchangeRows(planted, name, 32, 144, 16); }),
        "pages exchanged", "K or V (not both) of pages 2 and 9 (pages of 16) are exchanged");
  }
  ExpectNamed(JudgePlanted("mask=causal_bottom_right+window:120",
                           [](Planted* planted) {
                             for (const char* name : {"k", "v"}) {
                               ExchangeRows(planted, name, 64, 144, 32);
                             }
                           }),
              "pages exchanged", "pages 4 and 9 (pages of 16) are exchanged");
}

TEST(Causes, NameAPageThatStandsTwice) {
  const auto repeat = [](const std::vector<const char*>& names) {
    return [names](Planted* planted) {
      for (const char* name : names) {
        Tensor& tensor = planted->inputs.at(name);
        const size_t row = 64 * SizeInBytes(tensor.dtype);
        for (size_t head = 0; head < 2; ++head) {
          std::memcpy(&tensor.bytes[(head * 200 + 48) * row],
                      &tensor.bytes[(head * 200 + 128) * row], 16 * row);
        }
      }
    };
  };
  const std::string text = "(pages of 16: keys 48 to 63) is read from page 8 of the same sequence";
  ExpectNamed(JudgePlanted("", repeat({"k", "v"})), "page replaced", "page 3 " + text);
  ExpectNamed(JudgePlanted("", repeat({"v"})), "page replaced", "V of page 3 " + text);
  ExpectNamed(JudgePlanted("", repeat({"k"})), "page replaced", "K of page 3 " + text);
}

TEST(Causes, NameEdgesBySequence) {
  const auto drop_last = [](int64_t of_first, int64_t of_second) {
    return [=](Planted* planted) {
      planted->rules.visible = [=](const AttentionCase&, const QueryIndex& query, VisibleSet* set) {
        const int64_t lost = query.batch == 0 ? of_first : of_second;
        set->keys.resize(set->keys.size() - static_cast<size_t>(lost));
      };
    };
  };
  const std::string causal = "b=2 mask=causal_bottom_right";
  ExpectNamed(JudgePlanted(causal, drop_last(3, 7)), "last keys missing",
              "in batch row 0 the last 3 keys that a query sees are left out, in batch row 1 the "
              "last 7 keys that a query sees are left out");
  ExpectNamed(JudgePlanted(causal, drop_last(0, 5)), "last keys missing",
              "the last 5 keys that a query sees are left out in batch row 1");
  ExpectNamed(JudgePlanted("b=2 mask=causal_bottom_right+window:50",
                           [](Planted* planted) {
                             planted->rules.visible = [](const AttentionCase&,
                                                         const QueryIndex& query, VisibleSet* set) {
                               if (query.batch == 1)
                                 set->keys.erase(set->keys.begin(), set->keys.begin() + 9);
                             };
                           }),
              "window off", "the window is 9 keys too short: 41 in place of 50 in batch row 1");
}

TEST(Causes, NameAnotherCauseInEachSequence) {
  const OutputVerdict out = JudgePlanted("b=2", OnKeys([](const QueryIndex& query, int32_t key) {
                                           if (query.batch == 0)
                                             return key >= 32 && key < 48 ? 0 : 1;
                                           return key >= 100 && key < 130 ? 2 : 1;
                                         }));
  ExpectNamed(
      out, "several causes",
      "in batch row 0 keys 32 to 47 (page 2 of 13 pages of 16) are left out; in batch row 1 "
      "keys 100 to 129 are counted twice");
}

OutputVerdict JudgeCodes(const std::string& format, const std::function<void(TensorMap*)>& edit) {
  const Case any =
      ParseCase("attention hq=8 hkv=2 l=3 t=100 d=64 q=bf16 out=bf16 data=gauss:7 k=" + format +
                " v=" + format);
  const TensorMap inputs = GenerateInputs(any, Profile());
  TensorMap edited = inputs;
  edit(&edited);
  SimulatedKernel kernel(KernelPlan(), Profile(), {});
  const TensorMap answer = Answer(&kernel, std::get<AttentionCase>(any), edited);
  const AttentionSource source(std::get<AttentionCase>(any), Profile(), KernelPlan(), inputs);
  return Judge(source, MemorySink(answer)).outputs[0];
}

TEST(Causes, NameScalesOfAnotherPlace) {
  // Numbers of a plane moved by so many, in each head.
  const auto moved = [](const std::string& plane, std::ptrdiff_t by, size_t parts) {
    return [=](TensorMap* inputs) {
      std::vector<std::byte>& bytes = inputs->at(plane).bytes;
      const size_t part = bytes.size() / parts;
      const auto size = static_cast<std::ptrdiff_t>(SizeInBytes(inputs->at(plane).dtype));
      for (size_t at = 0; at < bytes.size(); at += part) {
        const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        std::rotate(begin, begin + by * size, begin + static_cast<std::ptrdiff_t>(part));
      }
    };
  };
  const std::string affine = "affine:4:g32:bf16", fp8 = "fp8:e4m3fn:token:bf16";
  ExpectNamed(JudgeCodes(affine, moved("k_scales", 1, 200)), "scales of another place",
              "scales of K are those of the next group");
  ExpectNamed(JudgeCodes(affine,
                         [&](TensorMap* inputs) {
                           moved("v_scales", 1, 200)(inputs);
                           moved("v_biases", 1, 200)(inputs);
                         }),
              "scales of another place", "scales and biases of V are those of the next group");
  ExpectNamed(JudgeCodes(affine, moved("v_scales", 200, 1)), "scales of another place",
              "scales of V are those of the next key/value head");
  ExpectNamed(JudgeCodes(fp8,
                         [](TensorMap* inputs) {
                           Tensor& scales = inputs->at("k_scales");
                           for (size_t head = 0; head < 2; ++head) {
                             std::memmove(&scales.bytes[head * 400], &scales.bytes[head * 400 + 4],
                                          396);
                           }
                         }),
              "scales of another place", "scales of K are those of the next token");
}

TEST(Causes, NameNothingThatHasNoName) {
  const OutputVerdict out = JudgePlanted("", [](Planted* planted) {
    planted->rules.output = [](const AttentionCase&, const QueryIndex& query,
                               std::span<double> values) {
      for (size_t c = 0; c < values.size(); ++c) {
        values[c] +=
            100 * std::sin(static_cast<double>(
                      c * c * 7 + static_cast<size_t>(query.query_head * 31 + query.query)));
      }
    };
  });
  EXPECT_EQ(out.outcome, Outcome::kFail);
  EXPECT_EQ(out.cause, "");
  EXPECT_TRUE(out.plan_changes.empty()) << Print(out.plan_changes[0]);
  ASSERT_FALSE(out.hints.empty());
  EXPECT_TRUE(out.hints[0].starts_with("not explained")) << out.hints[0];
  // Nor do the statistics accuse a fault.
  for (const std::string& line : out.statistics->over) {
    EXPECT_EQ(line.find("fits best"), std::string::npos) << line;
  }
}

TEST(Causes, EstimateTheWeightOfALostKey) {
  const OutputVerdict out =
      JudgePlanted("", OnKeys([](const QueryIndex&, int32_t key) { return key == 55 ? 0 : 1; }));
  ExpectNamed(out, "key missing", "key 55 is left out");
  ASSERT_FALSE(out.seen->keys.empty());
  const WeightEstimate& key = out.seen->keys[0];
  EXPECT_EQ(key.first, 55);
  // The change of a lost weight P is -1 / (1 - P), a mean over the rows; within six standard
  // errors.
  const double largest = LargestWeight(55);
  EXPECT_LE(key.change, -1 + 6 * key.error);
  EXPECT_GE(key.change, -1 / (1 - largest) - 6 * key.error);
  EXPECT_LT(key.error, 0.02);
  // Blocks of 4 keys, a column each; the 14th holds the key.
  EXPECT_EQ(out.seen->block, 4);
  ASSERT_EQ(out.seen->heads.size(), 8U);
  EXPECT_EQ(out.seen->heads[0].change.size(), out.seen->heads[0].queries.size() * 50);
}

TEST(Causes, AreNotAskedOfARightAnswer) {
  const OutputVerdict out = JudgePlanted("", [](Planted*) {});
  EXPECT_EQ(out.outcome, Outcome::kPass);
  EXPECT_FALSE(out.seen.has_value());
}

TEST(Causes, SayThePageOfKeys) {
  EXPECT_EQ(KeysText(4032, 4096, 4096), "keys 4032 to 4095 (page 63 of 64 pages of 64)");
  EXPECT_EQ(KeysText(5, 6, 64), "key 5");
  EXPECT_EQ(KeysText(5, 9, 64), "keys 5 to 8");
}

}  // namespace
}  // namespace kvcheck
