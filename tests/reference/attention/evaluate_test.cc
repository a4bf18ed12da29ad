// The vectorised evaluator on every instruction set against the plain definition, bit for bit.

#include "reference/attention/evaluate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "reference/attention/evaluate_kernels.h"
#include "reference/data/generator.h"

namespace kvcheck {
namespace {

struct Question {
  HeadData head;
  std::vector<double> q, bias, forced;
  std::vector<int32_t> keys;
  RowQuestion row;

  explicit Question(uint64_t seed) {
    Generator r(seed, "question", 0);
    const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 129};
    const int64_t dims[] = {1, 2, 3, 15, 16, 17, 33, 64, 129};
    head.kv_len = lengths[r.Below(8)];
    head.k.dim = dims[r.Below(9)];
    head.v.dim = dims[r.Below(9)];
    const auto fill = [&](OperandRows* rows) {
      const auto size = static_cast<size_t>(head.kv_len * rows->dim);
      const bool lo = r.Below(3) == 0, magnitude = r.Below(3) == 0, codec = r.Below(3) == 0;
      for (size_t i = 0; i < size; ++i) {
        double x = r.Gauss() * std::exp2(static_cast<double>(r.Between(-8, 8)));
        if (r.Below(6) == 0) x = r.Below(2) == 0 ? 0.0 : -0.0;  // the sign shows in the bits
        rows->hi.push_back(x);
        if (lo) rows->lo.push_back(x * 0x1p-54 * r.Uniform());
        if (magnitude) rows->magnitude.push_back(std::fabs(x) * (1 + r.Uniform()));
        if (codec) rows->codec_error.push_back(r.Uniform());
      }
    };
    fill(&head.k);
    fill(&head.v);
    const int64_t tiles = (head.kv_len + kKeyTile - 1) / kKeyTile;
    const auto transpose = [&](const std::vector<double>& rows) {
      std::vector<double> out(rows.empty() ? 0
                                           : static_cast<size_t>(tiles * kKeyTile * head.k.dim));
      for (int64_t j = 0; j < head.kv_len && !rows.empty(); ++j) {
        for (int64_t i = 0; i < head.k.dim; ++i) {
          out[static_cast<size_t>((j / kKeyTile * head.k.dim + i) * kKeyTile + j % kKeyTile)] =
              rows[static_cast<size_t>(j * head.k.dim + i)];
        }
      }
      return out;
    };
    head.k_tiles = transpose(head.k.hi);
    head.k_lo_tiles = transpose(head.k.lo);
    head.k_magnitude_tiles = transpose(head.k.magnitude);
    for (int64_t i = 0; i < head.k.dim; ++i) q.push_back(r.Gauss());
    const bool gaps = r.Below(2) == 0;
    for (int32_t j = 0; j < head.kv_len; ++j) {
      if (!gaps || r.Below(3) != 0) keys.push_back(j);
    }
    if (keys.empty()) keys.push_back(static_cast<int32_t>(head.kv_len - 1));
    const bool has_bias = r.Below(3) == 0, has_forced = r.Below(4) == 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      if (has_bias) bias.push_back(r.Gauss() * 3);
      if (has_forced) {
        forced.push_back(r.Below(2) == 0 ? std::numeric_limits<double>::quiet_NaN() : -20);
      }
    }
    row.head = &head;
    row.q = q, row.keys = keys, row.bias = bias, row.forced_score = forced;
    row.scale = r.Below(4) == 0 ? 0.3 : 1 / std::sqrt(static_cast<double>(head.k.dim));
    row.softcap = r.Below(4) == 0 ? 30 : 0;
    row.has_sink = r.Below(4) == 0;
    row.sink = r.Gauss();
  }
  Question(const Question&) = delete;
};

bool Same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
bool Same(DoubleDouble a, DoubleDouble b) { return Same(a.hi, b.hi) && Same(a.lo, b.lo); }
template <typename T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const T& x, const T& y) { return Same(x, y); });
}

template <typename Real>
void ExpectEvaluatesAsDefined(const Question& question, std::string_view target, uint64_t seed) {
  const RowAnswer<Real> want = Define<Real>(question.row);
  const RowAnswer<Real> got = Evaluate<Real>(question.row);
  EXPECT_TRUE(Same(got.x, want.x) && Same(got.s, want.s) && Same(got.e, want.e) &&
              Same(got.p, want.p) && Same(got.magnitude, want.magnitude) && Same(got.o, want.o) &&
              Same(got.max, want.max) && Same(got.denominator, want.denominator) &&
              Same(got.sink_p, want.sink_p))
      << target << " seed " << seed << " n " << question.keys.size() << " d " << question.head.k.dim
      << " dv " << question.head.v.dim;
}

class Targets : public ::testing::Test {
 protected:
  // Runs body once per target of this processor, and proves that it was the one in use.
  static void ForEach(const std::function<void(std::string_view)>& body) {
    ASSERT_FALSE(EvaluatorTargets().empty());
    for (std::string_view target : EvaluatorTargets()) {
      SetEvaluatorTarget(target);
      ASSERT_EQ(EvaluatorTargetInUse(), target);
      body(target);
    }
    SetEvaluatorTarget("");
    EXPECT_EQ(EvaluatorTargetInUse(), EvaluatorTargets().front());
  }
};
using Evaluator = Targets;

TEST_F(Evaluator, EqualsTheDefinitionOnEveryTarget) {
  ForEach([](std::string_view target) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Question question(seed);
      ExpectEvaluatesAsDefined<double>(question, target, seed);
      ExpectEvaluatesAsDefined<DoubleDouble>(question, target, seed);
    }
  });
}

TEST_F(Evaluator, SumsChannelsAsWrittenPlainlyOnEveryTarget) {
  ForEach([](std::string_view target) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Question question(seed);
      Generator r(seed, "weights", 0);
      Arithmetic a;
      a.parts = r.Below(2) == 0;
      a.factored = a.parts && r.Below(2) == 0;
      KeyWeights w;
      const bool has_y = r.Below(2) == 0;
      for (size_t j = 0; j < question.keys.size(); ++j) {
        w.c.push_back(r.Uniform());
        w.x.push_back(r.Uniform());
        if (has_y) w.y.push_back(r.Uniform());
      }
      w.sink_c = r.Uniform();
      const RowAnswer<double> answer = Evaluate<double>(question.row);
      std::vector<ChannelSums> got, want;
      SumChannels(a, question.row, answer.p, w, answer.o, &got);
      SumChannelsPlainly(a, question.row, answer.p, w, answer.o, &want);
      ASSERT_EQ(got.size(), want.size());
      for (size_t c = 0; c < got.size(); ++c) {
        const ChannelSums &g = got[c], &p = want[c];
        ASSERT_TRUE(Same(g.o, p.o) && Same(g.mass, p.mass) && Same(g.c, p.c) && Same(g.x, p.x) &&
                    Same(g.y, p.y) && Same(g.parts, p.parts) && Same(g.codec, p.codec) &&
                    Same(g.largest, p.largest) && Same(g.spread, p.spread))
            << target << " seed " << seed << " channel " << c;
      }
      std::vector<double> sums;
      WeightedSum(question.row, w.x, &sums);
      for (size_t c = 0; c < sums.size(); ++c) {
        double sum = 0;
        for (size_t j = 0; j < question.keys.size(); ++j) {
          sum +=
              w.x[j] * question.head.v.hi[static_cast<size_t>(question.keys[j]) * sums.size() + c];
        }
        ASSERT_TRUE(Same(sums[c], sum)) << target;
      }
    }
  });
}

TEST_F(Evaluator, ProjectsAsWrittenPlainlyOnEveryTarget) {
  ForEach([](std::string_view target) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Question question(seed);
      Generator r(seed, "projection", 0);
      const auto dv = static_cast<size_t>(question.head.v.dim);
      std::vector<double> w(dv * kProjectLanes);
      for (double& x : w) x = r.Gauss();
      std::vector<double> projected;
      Project(question.row, w, &projected);
      ASSERT_EQ(projected.size(), question.keys.size() * kProjectLanes);
      for (size_t i = 0; i < projected.size(); ++i) {
        const auto key = static_cast<size_t>(question.keys[i / kProjectLanes]);
        double sum = 0;
        for (size_t c = 0; c < dv; ++c) {
          sum += question.head.v.hi[key * dv + c] * w[c * kProjectLanes + i % kProjectLanes];
        }
        ASSERT_TRUE(Same(projected[i], sum)) << target << " seed " << seed << " at " << i;
      }
    }
  });
}

}  // namespace
}  // namespace kvcheck
