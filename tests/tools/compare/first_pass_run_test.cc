#include "tools/compare/first_pass_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <vector>

#include "reference/spec/error.h"
#include "tests/tools/compare/memory_tensor.h"

namespace kvcheck {
namespace {

// Two files without structure, of drawn float32 values that differ now and then.
class FirstPassRun : public testing::Test {
 protected:
  void SetUp() override {
    const std::string stem = testing::TempDir() + "first_pass_run_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name();
    expected_path_ = stem + "_expected";
    got_path_ = stem + "_got";
  }
  void TearDown() override {
    std::filesystem::remove(expected_path_);
    std::filesystem::remove(got_path_);
  }

  void WriteFiles(size_t elements) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    expected_.resize(elements);
    for (float& value : expected_) value = normal(random);
    got_ = expected_;
    for (size_t i = 0; i < elements; i += 1 + random() % 5000) got_[i] *= 1.0F + 0x1p-20F;
    Write(expected_path_, expected_);
    Write(got_path_, got_);
  }

  static void Write(const std::string& path, const std::vector<float>& values) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

  // Tensors of `elements` each, cut from the files one behind the other.
  std::vector<PassPair> PairsOf(const MappedFile& expected, const MappedFile& got,
                                const std::vector<int64_t>& elements) {
    std::vector<PassPair> pairs;
    int64_t offset = 0;
    for (const int64_t count : elements) {
      PassPair pair;
      pair.expected = {&expected, offset, nullptr, ""};
      pair.got = {&got, offset, nullptr, ""};
      pair.elements = count;
      pair.rule = {.kind = PassRule::Kind::kUlp, .ulps = 100};
      pairs.push_back(pair);
      offset += count * 4;
    }
    return pairs;
  }

  PassSummary Direct(int64_t first, int64_t count, const PassRule& rule) const {
    const auto bytes = [&](const std::vector<float>& values) {
      return std::as_bytes(
          std::span(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
    };
    return ComparePass(DType::kFloat32, bytes(expected_), bytes(got_), rule);
  }

  std::string expected_path_;
  std::string got_path_;
  std::vector<float> expected_;
  std::vector<float> got_;
};

TEST_F(FirstPassRun, IsOnePassPerPairForAnyNumberOfThreads) {
  WriteFiles(5'000'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  // Smaller and larger than windows, of all alignments of pages, and none.
  const std::vector<int64_t> elements = {1, 3'000'001, 0, 129, 1'500'000, 4096, 7, 400'000};
  const std::vector<PassPair> pairs = PairsOf(expected, got, elements);
  for (const int threads : {1, 2, 3, 16}) {
    const std::vector<PassSummary> summaries = RunFirstPass(pairs, threads);
    ASSERT_EQ(summaries.size(), pairs.size());
    int64_t first = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
      EXPECT_EQ(summaries[i], Direct(first, elements[i], pairs[i].rule)) << threads << " " << i;
      first += elements[i];
    }
    EXPECT_GT(summaries[1].unlike_bits, 0);
  }
}

TEST_F(FirstPassRun, ReadsWhatCannotBeMapped) {
  WriteFiles(700'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  std::vector<PassPair> pairs = PairsOf(expected, got, {700'000});
  const auto tensor_of = [](const std::vector<float>& values) {
    Tensor tensor(DType::kFloat32, Shape::Unnamed({static_cast<int64_t>(values.size())}));
    std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
  };
  const MemoryTensor stored(tensor_of(got_));
  pairs[0].got = {nullptr, 0, &stored, kTensorName};
  const std::vector<PassSummary> summaries = RunFirstPass(pairs, 2);
  EXPECT_EQ(summaries[0], Direct(0, 700'000, pairs[0].rule));
}

TEST_F(FirstPassRun, ManySmallTensorsInAnyOrderOfTheFile) {
  WriteFiles(100'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  std::vector<PassPair> pairs = PairsOf(expected, got, std::vector<int64_t>(10'000, 10));
  std::vector<PassSummary> in_order = RunFirstPass(pairs, 2);
  std::reverse(pairs.begin(), pairs.end());
  std::vector<PassSummary> reversed = RunFirstPass(pairs, 2);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(in_order, reversed);
  EXPECT_EQ(in_order[1234], Direct(12340, 10, pairs[0].rule));
}

TEST_F(FirstPassRun, TheFirstErrorInOrderIsThrownForAnyNumberOfThreads) {
  WriteFiles(4'000'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  std::vector<PassPair> pairs = PairsOf(expected, got, {2'000'000, 1'000'000, 1'000'000});
  pairs[1].got.offset = 16'000'000 - 4;
  pairs[2].got.offset = 16'000'000 - 8;
  std::string first_message;
  for (const int threads : {1, 2, 5}) {
    try {
      RunFirstPass(pairs, threads);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
      if (first_message.empty()) first_message = error.message();
      EXPECT_EQ(error.message(), first_message) << threads;
    }
  }
}

TEST_F(FirstPassRun, NoticesAFileThatChangesMeanwhile) {
  WriteFiles(3'000'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  const std::vector<PassPair> pairs = PairsOf(expected, got, {3'000'000});
  bool is_cut = false;
  const auto cut = [&] {
    if (!is_cut) std::filesystem::resize_file(got_path_, 5000);
    is_cut = true;
  };
  EXPECT_THROW(RunFirstPass(pairs, 2, cut), Error);
  EXPECT_TRUE(is_cut);
}

TEST_F(FirstPassRun, ProgressMayEndIt) {
  WriteFiles(3'000'000);
  const MappedFile expected(expected_path_);
  const MappedFile got(got_path_);
  const std::vector<PassPair> pairs = PairsOf(expected, got, {3'000'000});
  struct Stop {};
  for (const int threads : {1, 2}) {
    EXPECT_THROW(RunFirstPass(pairs, threads, [] { throw Stop(); }), Stop);
  }
}

TEST(PassRuleOf, IsTheRuleThatTheJudgeIsGiven) {
  const SpecialPolicy special = {NanPolicy::kEqual, NanPolicy::kEqualBits};
  const auto exact = PassRuleOf(ExactRule{}, special);
  EXPECT_EQ(exact, (PassRule{.kind = PassRule::Kind::kExact, .nan = PassNan::kEqualBits}));
  const auto ulp = PassRuleOf(UlpRule{3}, special);
  EXPECT_EQ(ulp, (PassRule{.kind = PassRule::Kind::kUlp, .ulps = 3, .nan = PassNan::kEqual}));
  const auto abs_rel = PassRuleOf(AbsRelRule{0.5, 0.25}, special);
  EXPECT_EQ(abs_rel, (PassRule{.kind = PassRule::Kind::kAbsRel,
                               .absolute = 0.5,
                               .relative = 0.25,
                               .nan = PassNan::kEqual}));
  EXPECT_EQ(PassRuleOf(DerivedRule{}, special), std::nullopt);
}

}  // namespace
}  // namespace kvcheck
