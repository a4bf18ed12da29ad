// The sums of a simulated kernel against native float loops and an integer model of a tensor core.

#include "reference/attention/simulated_sums.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "reference/data/generator.h"

namespace kvcheck {
namespace {

const std::vector<size_t> kLengths = {1, 2, 7, 8, 9, 15, 16, 17, 129};

struct Operands {
  std::vector<double> a, b;
  Operands(size_t n, uint64_t seed) {
    Generator random(seed, "sums", n);
    for (size_t i = 0; i < n; ++i) {
      a.push_back(static_cast<float>(random.Gauss() * std::exp2(random.Between(-20, 20))));
      b.push_back(static_cast<float>(random.Gauss()));
    }
  }
  float A(size_t i) const { return static_cast<float>(a[i]); }
  float B(size_t i) const { return static_cast<float>(b[i]); }
};

SumPlan Order(SumOrder order, int width = 0, bool fma = false) {
  SumPlan sum;
  sum.order = order, sum.width = width, sum.fma = fma;
  return sum;
}

float Tree(std::vector<float> terms) {
  if (terms.size() == 1) return terms[0];
  const auto middle = terms.begin() + static_cast<std::ptrdiff_t>((terms.size() + 1) / 2);
  return Tree({terms.begin(), middle}) + Tree({middle, terms.end()});
}

void ExpectSame(double got, float want, size_t n) {
  EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(static_cast<double>(want)))
      << "n " << n << ": " << got << " " << want;
}

TEST(SimulatedSum, SequentialEqualsAFloatLoop) {
  for (size_t n : kLengths) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Operands x(n, seed);
      float sum = 0, fused = 0;
      for (size_t i = 0; i < n; ++i) {
        const float product = x.A(i) * x.B(i);
        sum += product;
        fused = std::fma(x.A(i), x.B(i), fused);
      }
      ExpectSame(simulated::Dot(Order(SumOrder::kSequential), false, x.a, x.b), sum, n);
      ExpectSame(simulated::Dot(Order(SumOrder::kSequential, 0, true), false, x.a, x.b), fused, n);
    }
  }
}

TEST(SimulatedSum, LanesAndTreesEqualFloatLoops) {
  for (size_t n : kLengths) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Operands x(n, seed);
      std::vector<float> products;
      std::vector<float> lanes(std::min<size_t>(8, n)), fused(std::min<size_t>(8, n));
      for (size_t i = 0; i < n; ++i) {
        products.push_back(x.A(i) * x.B(i));
        lanes[i % lanes.size()] += products[i];
        float& lane = fused[i % fused.size()];
        lane = std::fma(x.A(i), x.B(i), lane);
      }
      ExpectSame(simulated::Dot(Order(SumOrder::kPairwise), false, x.a, x.b), Tree(products), n);
      ExpectSame(simulated::Dot(Order(SumOrder::kLanes, 8), false, x.a, x.b), Tree(lanes), n);
      ExpectSame(simulated::Dot(Order(SumOrder::kLanes, 8, true), false, x.a, x.b), Tree(fused), n);
    }
  }
}

TEST(SimulatedSum, FlushesSubnormalResults) {
  const std::vector<double> a = {0x1p-100, 0x1p-100}, b = {0x1p-30, 0x1p-30};
  EXPECT_EQ(simulated::Dot(Order(SumOrder::kSequential), false, a, b), 0x1p-129);
  EXPECT_EQ(simulated::Dot(Order(SumOrder::kSequential), true, a, b), 0);
}

TEST(SimulatedSum, TowardZeroNeverExceedsTheExactSumOfPositiveTerms) {
  for (size_t n : kLengths) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      Operands x(n, seed);
      for (double& value : x.a) value = std::fabs(value);
      for (double& value : x.b) value = std::fabs(value);
      long double exact = 0;  // 24-bit products over 2^40 fit 64 bits but for the last few
      for (size_t i = 0; i < n; ++i) exact += static_cast<long double>(x.a[i] * x.b[i]);
      for (bool fma : {false, true}) {
        for (SumPlan sum :
             {Order(SumOrder::kSequential, 0, fma), Order(SumOrder::kLanes, 4, fma)}) {
          sum.accumulator.toward_zero = true;
          const double got = simulated::Dot(sum, false, x.a, x.b);
          EXPECT_LE(got, static_cast<double>(exact) * (1 + 0x1p-52));
          EXPECT_GT(got, static_cast<double>(exact) * (1 - static_cast<double>(n + 1) * 0x1p-23));
        }
      }
    }
  }
}

// One call on integers: every addend in units of 2^(largest exponent - f), cut toward zero.
double IntegerCall(double accumulator, const std::vector<double>& products, int f) {
  int largest = -100000;
  std::vector<double> addends = products;
  addends.push_back(accumulator);
  for (double x : addends) {
    if (x != 0) largest = std::max(largest, std::ilogb(x));
  }
  if (largest == -100000) return 0;
  __int128 sum = 0;
  for (double x : addends) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);  // x = mantissa 2^(exponent - 53)
    auto mantissa = static_cast<__int128>(std::ldexp(fraction, 53));
    const int shift = exponent - 53 - (largest - f);
    const bool negative = mantissa < 0;
    if (negative) mantissa = -mantissa;
    mantissa = shift >= 0 ? mantissa << shift : shift < -120 ? 0 : mantissa >> -shift;
    sum += negative ? -mantissa : mantissa;
  }
  const bool negative = sum < 0;
  if (negative) sum = -sum;
  int dropped = 0;
  while (sum >= (__int128{1} << 24)) sum >>= 1, ++dropped;
  const double value = std::ldexp(static_cast<double>(sum), dropped + largest - f);
  return negative ? -value : value;
}

TEST(SimulatedSum, TensorCoreCallsEqualTheIntegerModel) {
  for (int width : {4, 8, 16}) {
    for (int bits : {13, 23, 25}) {
      for (size_t n : kLengths) {
        for (uint64_t seed = 0; seed < 20; ++seed) {
          const Operands x(n, seed);
          double want = 0;
          for (size_t i = 0; i < n; i += static_cast<size_t>(width)) {
            std::vector<double> products;
            for (size_t j = i; j < std::min(n, i + static_cast<size_t>(width)); ++j) {
              products.push_back(x.a[j] * x.b[j]);
            }
            want = IntegerCall(want, products, bits);
          }
          SumPlan sum = Order(SumOrder::kTensorCore, width);
          sum.aligned_bits = bits;
          EXPECT_EQ(simulated::Dot(sum, false, x.a, x.b), want) << n << " " << width << " " << bits;
        }
      }
    }
  }
}

TEST(SimulatedSum, ChainedBlocksContinueAndOthersJoin) {
  const Operands x(48, 5);
  std::vector<const double*> rows;
  for (const double& value : x.b) rows.push_back(&value);
  for (bool chained : {false, true}) {
    SumPlan sum = Order(SumOrder::kSequential);
    sum.chained = chained;
    auto accumulator = simulated::MakeAccumulator(sum, false, 1);
    float want = 0;
    for (size_t begin = 0; begin < 48; begin += 16) {
      accumulator->AddBlock(std::span(x.a).subspan(begin, 16), std::span(rows).subspan(begin, 16));
      float block = chained ? want : 0;
      for (size_t i = begin; i < begin + 16; ++i) {
        const float product = x.A(i) * x.B(i);
        block += product;
      }
      want = chained ? block : want + block;
      accumulator->Rescale(0.75);
      want *= 0.75f;
    }
    ExpectSame(accumulator->Finish()[0], want, 48);
  }
}

TEST(SimulatedSum, FactoredCodesEqualAFloatLoop) {
  // Two groups of two channels: codes, then scales, then biases.
  const std::vector<double> row = {3, 1, 0, 7, 0.5, 0.25, -1, 2};
  const std::vector<double> q = {1.5, -2, 0.125, 3};
  const double got =
      simulated::FactoredDot(Order(SumOrder::kSequential), RoundedType{}, false, 2, q, row.data());
  // (1.5 3 - 2 1) 0.5 - (1.5 - 2) + (0.125 0 + 3 7) 0.25 + 2 (0.125 + 3)
  EXPECT_EQ(got, 1.25 + 0.5 + 5.25 + 6.25);
}

}  // namespace
}  // namespace kvcheck
