// The holes through which public comparators let differences pass, each with the report that it
// comes from, held against kvcheck compare.

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

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

// A misspelt pattern beside a right one leaves out what it was written for.
TEST_F(ComparatorHole, EveryPatternSelectsSomething) {
  Write("gold.h5", CacheTensors(2));
  Write("got.h5", CacheTensors(2));
  EXPECT_EQ(Again({"--include", "*/keys", "--include", "*/values"}).exit_code, 0);
  for (const char* option : {"--include", "--exclude"}) {
    const ToolRun run = Again({"--include", "*/keys", option, "*/kyes"});
    EXPECT_EQ(run.exit_code, 2) << option << run.out;
    EXPECT_NE(run.err.find(std::string(option) + ": '*/kyes' matches no tensor"), std::string::npos)
        << run.err;
  }
  const ToolRun codec = Tool(
      {"fuzz", "--kind", "codec", "--format", "affine:4:*", "--format", "q9_9", "--cases", "1"});
  EXPECT_EQ(codec.exit_code, 2) << codec.out;
  EXPECT_NE(codec.err.find("no format matches 'q9_9'"), std::string::npos) << codec.err;
}

// Whatever is in a file equals itself.
TEST_F(ComparatorHole, AFileBesideItselfProvesNothing) {
  Write("gold.h5", CacheTensors(2));
  std::filesystem::create_hard_link(Path("gold.h5"), Path("hard.h5"));
  std::filesystem::create_symlink("gold.h5", Path("soft.h5"));
  std::filesystem::copy_file(Path("gold.h5"), Path("copy.h5"));
  for (const char* got : {"gold.h5", "./gold.h5", "hard.h5", "soft.h5"}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--stats", "full"}, {"--tol", "rel:2^-10"}}) {
      std::vector<std::string> arguments = {"compare", "gold.h5", got};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const ToolRun run = Tool(arguments);
      EXPECT_EQ(run.exit_code, 3) << got << run.out;
      EXPECT_NE(run.out.find("compared with itself: GOLD and GOT are one file"), std::string::npos)
          << run.out;
    }
  }
  EXPECT_EQ(Tool({"compare", "gold.h5", "copy.h5"}).exit_code, 0);
  // Other tensors of the same file are others.
  TensorMap both = CacheTensors(1);
  both["/again/keys"] = both["/layers/0/keys"];
  Write("both.h5", both);
  EXPECT_EQ(Tool({"compare", "both.h5", "both.h5", "--include", "/layers/0/keys", "--map",
                  "s#^layers/0/keys#old#", "--map", "s#^again/keys#layers/0/keys#"})
                .exit_code,
            0);
}

TEST_F(ComparatorHole, TensorsOfNanOrInfinityAreSaidToBe) {
  const double infinity = std::numeric_limits<double>::infinity();
  const ToolRun nan = Compare({{"/x", F64({kNan, kNan})}}, {{"/x", F64({kNan, kNan})}},
                              {"--nan", "equal", "--tol", "abs:1"});
  EXPECT_EQ(nan.exit_code, 0);
  EXPECT_NE(nan.out.find("2 of 2 judged values are no finite numbers on both sides: 2 NaN"),
            std::string::npos)
      << nan.out;
  EXPECT_EQ(Again({"--nan", "equal", "--tol", "abs:1", "--strict"}).exit_code, 1);
  const ToolRun infinite =
      Compare({{"/x", F64({infinity, -infinity})}}, {{"/x", F64({infinity, -infinity})}});
  EXPECT_EQ(infinite.exit_code, 0);
  EXPECT_NE(infinite.out.find("0 NaN, 2 infinite"), std::string::npos) << infinite.out;
}

// The pass that reads at the speed of memory knows no rows.
TEST_F(ComparatorHole, HalfOfTheRowsBelowTheTolerance) {
  const Shape shape = {{"T", 64}, {"Dk", 64}};
  Tensor gold = Counting(shape, 1000);
  Tensor got = Counting(shape, 1000);
  for (int64_t i = 0; i < 32 * 64; ++i) {
    gold.As<float>()[i] = i % 2 == 0 ? 4.0F : -3.0F;
    got.As<float>()[i] = -gold.As<float>()[i];
  }
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--stats", "full"}, {"-j", "1"}}) {
    std::vector<std::string> arguments = {"--tol", "abs:10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ToolRun run = Compare({{"/x", gold}}, {{"/x", got}}, arguments);
    EXPECT_EQ(run.exit_code, 3) << run.out;
    EXPECT_NE(run.out.find("at least half of 32 of 64 rows"), std::string::npos) << run.out;
  }
  for (int64_t i = 0; i < 28 * 64; ++i) gold.As<float>()[i] = got.As<float>()[i] = 1000;
  const ToolRun few = Compare({{"/x", gold}}, {{"/x", got}}, {"--tol", "abs:10"});
  EXPECT_EQ(few.exit_code, 0) << few.out;
  EXPECT_NE(few.out.find("at least half of 4 of 64 rows"), std::string::npos) << few.out;
}

}  // namespace
}  // namespace kvcheck
