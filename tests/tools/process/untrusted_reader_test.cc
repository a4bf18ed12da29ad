// Reading in a child gives what reading in this process gives, and damaged files are refused, found
// by their hash, or the same as before.

#include "tools/process/untrusted_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "golden/hdf5_file.h"
#include "golden/numpy_array.h"
#include "golden/reader.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"
#include "tests/tools/process/damaged_files.h"
#include "tests/tools/process/damaged_plain.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

using golden_damage::Outcome;

std::string FixturePath() {
  return std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_python.h5";
}

TEST(UntrustedFile, GivesWhatReadingInThisProcessGives) {
  const std::string stranger =
      std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_stranger.h5";
  EXPECT_TRUE(UntrustedFile(stranger).index() == Hdf5File(stranger).index());
  UntrustedFile untrusted(FixturePath());
  Hdf5File trusted(FixturePath());
  EXPECT_TRUE(untrusted.index() == trusted.index());
  for (const auto& [path, record] : trusted.index().objects) {
    if (record.is_dataset) {
      EXPECT_TRUE(ReadTensor(untrusted, path) == ReadTensor(trusted, path)) << path;
    }
  }
  EXPECT_TRUE(ReadUntrustedGolden(FixturePath()) == GoldenReader::Open(FixturePath()).ReadAll());
}

TEST(UntrustedFile, ReadsATensorOfManyBlocks) {
  const std::string path = golden_samples::TemporaryPath("blocks.h5");
  GoldenFile file = golden_samples::SmallContent();
  file.cases[0].inputs["large"] =
      golden_samples::Counting(DType::kFloat32, Shape::Unnamed({(1 << 20) + 1}));
  file.content_hash = WriteGoldenFile(path, file);
  EXPECT_TRUE(ReadUntrustedGolden(path) == file);
  std::filesystem::remove(path);
}

TEST(UntrustedFile, ReadsArchivesOfNumpyInAChild) {
  for (const char* name : {"fixture_numpy.npz", "fixture_compressed.npz"}) {
    const std::string path = std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/" + name;
    NumpyArchive trusted(path);
    const std::unique_ptr<TensorSource> file = OpenUntrustedTensors(path);
    EXPECT_NE(dynamic_cast<UntrustedFile*>(file.get()), nullptr);
    EXPECT_TRUE(file->index() == trusted.index());
    for (const auto& [dataset, record] : trusted.index().objects) {
      if (!record.is_dataset) continue;
      EXPECT_TRUE(ReadTensor(*file, dataset) == ReadTensor(trusted, dataset)) << dataset;
    }
    EXPECT_EQ(OpenUntrustedTensors(path + ":bf16")->path(), path);
  }
  // Damage in the bytes of a compressed array shows when it is read, and ends nothing else.
  const std::string path = golden_samples::TemporaryPath("damaged.npz");
  std::string bytes = golden_samples::ReadBytes(std::string(KVCHECK_SOURCE_DIR) +
                                                "/tests/golden/fixture_compressed.npz");
  bytes[bytes.size() / 4] = static_cast<char>(bytes[bytes.size() / 4] ^ 0x55);
  golden_samples::WriteBytes(path, bytes);
  const std::unique_ptr<TensorSource> file = OpenUntrustedTensors(path);
  EXPECT_THROW(ReadTensor(*file, "/many"), Error);
  EXPECT_EQ(ReadTensor(*file, "/little_f4").ElementCount(), 6);
  std::filesystem::remove(path);
}

TEST(UntrustedFile, AnAbsentFileIsAnErrorWithItsPath) {
  try {
    UntrustedFile file("/nonexistent/file.h5");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    EXPECT_EQ(error.context(), "/nonexistent/file.h5");
  }
}

TEST(MessageDecoder, RefusesEveryTruncationAndSurvivesEveryFlippedBit) {
  MessageEncoder encoder;
  const Hdf5File file(FixturePath());
  encoder.Record(file.index().objects.at("/cases/attention-1.f32/q"));
  const Message& whole = encoder.message();
  for (size_t size = 0; size < whole.size(); ++size) {
    MessageDecoder decoder({whole.data(), size});
    EXPECT_THROW(decoder.Record({}, 1 << 20), Error) << size;
  }
  int read = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Message flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    try {
      MessageDecoder decoder(flipped);
      decoder.Record({}, 1 << 20);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnreadableFile);
    }
  }
  EXPECT_GT(read, 0);  // bits of texts
}

TEST(MessageDecoder, HoldsADataOffsetToTheSizeOfTheFile) {
  ObjectRecord record;
  record.is_dataset = true;
  record.shape = Shape::Unnamed({25});
  record.data_offset = 50;
  MessageEncoder encoder;
  encoder.Record(record);
  EXPECT_TRUE(MessageDecoder(encoder.message()).Record({}, 150) == record);
  EXPECT_THROW(MessageDecoder(encoder.message()).Record({}, 149), Error);
  EXPECT_THROW(MessageDecoder(encoder.message()).Record({}, 0), Error);
  for (int64_t offset : {int64_t{-2}, std::numeric_limits<int64_t>::max()}) {
    record.data_offset = offset;
    MessageEncoder other;
    other.Record(record);
    EXPECT_THROW(MessageDecoder(other.message()).Record({}, 150), Error) << offset;
  }
}

// The index of many objects crosses in several messages.
TEST(UntrustedFile, ListsManyObjectsAsReadingInThisProcessDoes) {
  const std::string path = golden_samples::TemporaryPath("many.h5");
  GoldenFile file = golden_samples::SmallContent();
  const Tensor tensor = golden_samples::Counting(DType::kFloat32, Shape::Unnamed({3}));
  for (int i = 0; i < 1500; ++i) file.cases[0].inputs[fmt::format("t{}", i)] = tensor;
  WriteGoldenFile(path, file);
  EXPECT_TRUE(UntrustedFile(path).index() == Hdf5File(path).index());
  std::filesystem::remove(path);
}

// ctest ends what hangs: no file of these seeds does.
constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(1000);

TEST(DamagedFile, NoneOf200IsReadAsOtherContent) {
  const golden_damage::Campaign campaign = golden_damage::RunCampaign(200, 1, kNoLimit);
  fmt::print("{}", golden_damage::ToTable(campaign.counts));
  EXPECT_EQ(Total(campaign.counts, Outcome::kSilentChange), 0);
  EXPECT_EQ(Total(campaign.counts, Outcome::kWrongError), 0);
  // The damage is real, and all three ways to end well occur.
  for (Outcome outcome : {Outcome::kRefused, Outcome::kHashMismatch, Outcome::kUnchanged}) {
    EXPECT_GT(Total(campaign.counts, outcome), 0) << Name(outcome);
  }
}

TEST(DamagedPlainHdf5, NoneOf200PassesAnExactComparisonWithChangedData) {
  const golden_damage::Campaign campaign = golden_damage::RunPlainHdf5Campaign(200, 1, kNoLimit);
  fmt::print("{}", golden_damage::ToTable(campaign.counts));
  EXPECT_EQ(Total(campaign.counts, Outcome::kSilentChange), 0);
  EXPECT_EQ(Total(campaign.counts, Outcome::kWrongError), 0);
  for (Outcome outcome : {Outcome::kRefused, Outcome::kDifferent, Outcome::kUnchanged}) {
    EXPECT_GT(Total(campaign.counts, outcome), 0) << Name(outcome);
  }
}

TEST(DamagedSafetensors, NoneOf200PassesAnExactComparisonWithChangedData) {
  const golden_damage::Campaign campaign = golden_damage::RunSafetensorsCampaign(200, 1, kNoLimit);
  fmt::print("{}", golden_damage::ToTable(campaign.counts));
  for (Outcome never :
       {Outcome::kSilentChange, Outcome::kWrongError, Outcome::kCrashed, Outcome::kHung}) {
    EXPECT_EQ(Total(campaign.counts, never), 0) << Name(never);
  }
  for (Outcome outcome : {Outcome::kRefused, Outcome::kDifferent, Outcome::kUnchanged}) {
    EXPECT_GT(Total(campaign.counts, outcome), 0) << Name(outcome);
  }
}

// One byte in 37; the slow test flips them all.
TEST(DamagedFile, NoFlippedByteIsReadAsOtherContent) {
  const golden_damage::OutcomeCounts counts = golden_damage::RunByteFlips(37, kNoLimit);
  fmt::print("{}", golden_damage::ToLine(counts));
  EXPECT_EQ(CountOf(counts, Outcome::kSilentChange), 0);
  EXPECT_EQ(CountOf(counts, Outcome::kWrongError), 0);
  EXPECT_GT(CountOf(counts, Outcome::kHashMismatch), 0);
}

}  // namespace
}  // namespace kvcheck
