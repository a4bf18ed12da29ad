// The holes through which public comparators let differences pass, each with the report that it
// comes from, held against kvcheck compare.

#include <gtest/gtest.h>

#include "tests/tools/kvcheck/stored_files.h"

namespace kvcheck {
namespace {

class ComparatorHole : public CompareStored {};

// h5diff 1.10.8 -p 0.01 exits with 0 for {1e-20, 3e-20} and {1e-20, 6e-20}: it takes differences
// below 2.2e-16 for none. numpy's allclose has atol=1e-8 unless told otherwise: numpy/numpy#7726.
TEST_F(ComparatorHole, SmallNumbersAreComparedLikeLargeOnes) {
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 6e-20})), 1);
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 6e-20}), {"--tol", "rel:0.01"}), 1);
  EXPECT_EQ(Exit(F64({1e-20, 3e-20}), F64({1e-20, 3.01e-20}), {"--tol", "rel:0.01"}), 0);
  EXPECT_EQ(Exit(F64({6.938894e-18}), F64({0})), 1);
  EXPECT_EQ(Exit(F64({5e-324, 1}), F64({0, 1}), {"--tol", "rel:0.01"}), 1);
}

// h5diff 1.10.8 exits with 0 where objects are "not comparable": other rank or dimensions, float
// against integer, other sign (RFC_h5diff_NonComparable of The HDF Group). A test suite that passed
// because of it: Samsung/ONE#2658.
TEST_F(ComparatorHole, WhatCannotBeComparedFails) {
  const Tensor x = Counting(Shape::Unnamed({2, 3}), 0);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({3, 2}), 0)), 1);  // the same bytes
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({6}), 0)), 1);     // other rank
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({1, 2, 3}), 0)), 1);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({2, 3}), 0, DType::kInt32)), 1);
  EXPECT_EQ(Exit(x, Counting(Shape::Unnamed({2, 3}), 0, DType::kFloat64)), 1);
  const Shape shape = Shape::Unnamed({2});
  EXPECT_EQ(Exit(Values(DType::kInt8, shape, {1, 2}), Values(DType::kUInt8, shape, {1, 2})), 1);
  // One pair beside others that agree.
  TensorMap got = CacheTensors(2);
  got["/layers/0/keys"] = x;
  EXPECT_EQ(Compare(CacheTensors(2), got).exit_code, 1);
}

// By the same RFC, and in 1.10.8, empty datasets are not comparable, and exit with 0. Two of one
// shape cannot differ; of two shapes they do; alone they prove nothing.
TEST_F(ComparatorHole, EmptyTensors) {
  const Tensor empty = Counting(Shape::Unnamed({0, 3}), 0);
  const Tensor other = Counting(Shape::Unnamed({0, 4}), 0);
  const Tensor one = Counting(Shape::Unnamed({1}), 1);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", empty}, {"/x", one}}).exit_code, 0);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", other}, {"/x", one}}).exit_code, 1);
  EXPECT_EQ(Compare({{"/e", empty}, {"/x", one}}, {{"/e", one}, {"/x", one}}).exit_code, 1);
  EXPECT_EQ(Exit(empty, empty), 3);
}

// h5diff takes any NaN for any other, as its manual says; assert_allclose passed NaN where it was
// told not to: numpy/numpy#8145; assertEqual of PyTorch takes NaN as equal: pytorch/pytorch#72194.
TEST_F(ComparatorHole, NanPairs) {
  Tensor payload = F64({1, kNan});
  payload.As<uint64_t>()[1] ^= 1;
  const Tensor nan = F64({1, kNan});
  const Tensor number = F64({1, 2});
  struct Row {
    const Tensor& got;
    std::vector<std::string> arguments;
    int exit;
  };
  const Row rows[] = {
      {nan, {}, 0},
      {payload, {}, 1},
      {number, {}, 1},
      {nan, {"--nan", "fail"}, 1},
      {payload, {"--nan", "equal"}, 0},
      {number, {"--nan", "equal"}, 1},
      {nan, {"--tol", "rel:0.01"}, 1},
      {nan, {"--tol", "rel:0.01", "--nan", "equal-bits"}, 0},
      {payload, {"--tol", "rel:0.01", "--nan", "equal-bits"}, 1},
      {payload, {"--tol", "rel:0.01", "--nan", "equal"}, 0},
      {number, {"--tol", "rel:0.01", "--nan", "equal"}, 1},
  };
  for (size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(Exit(nan, rows[i].got, rows[i].arguments), rows[i].exit) << "row " << i;
  }
  EXPECT_EQ(Exit(number, nan, {"--tol", "abs:0.01", "--nan", "equal"}), 1);
}

// h5diff 1.10.8 prints nothing, and with -r "0 differences found" for every object, when one file
// has a dataset more; the exit code alone tells: HDFGroup/hdf5#6102. Here it is a failure with a
// name.
TEST_F(ComparatorHole, MissingObjectsInEitherOrderOfTheFiles) {
  TensorMap more = CacheTensors(2);
  more["/layers/2/keys"] = Counting({{"", 2}}, 0);
  const ToolRun extra = Compare(CacheTensors(2), more);
  EXPECT_EQ(extra.exit_code, 1);
  EXPECT_NE(extra.out.find("FAIL  /layers/2/keys  extra"), std::string::npos) << extra.out;
  const ToolRun missing = Compare(more, CacheTensors(2));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.out.find("FAIL  /layers/2/keys  missing"), std::string::npos) << missing.out;
}

// allclose(a, b) is not allclose(b, a): its tolerance grows with the second one
// (numpy/numpy#13395 quotes the definition). Here it is always GOLD's.
TEST_F(ComparatorHole, ToleranceIsOfGoldWhateverTheOrder) {
  const Tensor small = F64({10});
  const Tensor large = F64({11});
  EXPECT_EQ(Exit(large, small, {"--tol", "rel:0.095"}), 0);  // 1 <= 0.095 x 11
  EXPECT_EQ(Exit(small, large, {"--tol", "rel:0.095"}), 1);  // 1 > 0.095 x 10
  EXPECT_EQ(Exit(small, large), 1);
  EXPECT_EQ(Exit(large, small), 1);
}

TEST_F(ComparatorHole, NothingSelectedIsNoPass) {
  Write("gold.h5", {});
  Write("got.h5", {});
  EXPECT_EQ(Again({}).exit_code, 2);
  Write("gold.h5", CacheTensors(1));
  Write("got.h5", CacheTensors(1));
  EXPECT_EQ(Again({"--include", "*/queries"}).exit_code, 2);
  EXPECT_EQ(Again({"--exclude", "*"}).exit_code, 2);
}

TEST_F(ComparatorHole, TypeThatAnAttributeAloneTellsApartFails) {
  // Both are stored as unsigned integers of 8 bits, with the same bytes.
  const Shape shape = Shape::Unnamed({3});
  Tensor e4m3(DType::kFloat8E4M3FN, shape);
  e4m3.As<uint8_t>()[0] = 0x38;
  Tensor e5m2 = e4m3;
  e5m2.dtype = DType::kFloat8E5M2;
  EXPECT_EQ(Exit(e4m3, e5m2), 1);
  EXPECT_EQ(Exit(e4m3, e4m3), 0);
  // Names of axes are no data.
  EXPECT_EQ(Exit(Counting({{"T", 3}}, 1), Counting({{"L", 3}}, 1)), 0);
}

}  // namespace
}  // namespace kvcheck
