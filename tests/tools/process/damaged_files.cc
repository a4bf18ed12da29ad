#include "tests/tools/process/damaged_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "golden/reader.h"
#include "golden/writer.h"
#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"
#include "tools/process/untrusted_reader.h"

namespace kvcheck::golden_damage {

using Clock = std::chrono::steady_clock;

Outcome ReadDamaged(const std::string& path, const GoldenFile& original,
                    std::chrono::milliseconds hang_limit) {
  UntrustedOptions options;
  options.child.since_progress = hang_limit;
  try {
    return ReadUntrustedGolden(path, options) == original ? Outcome::kUnchanged
                                                          : Outcome::kSilentChange;
  } catch (const Error& error) {
    const auto says = [&error](const char* text) {
      return error.message().find(text) != std::string::npos;
    };
    if (error.code() != ErrorCode::kUnreadableFile) return Outcome::kWrongError;
    if (says("crashed (signal")) return Outcome::kCrashed;
    if (says("made no progress")) return Outcome::kHung;
    if (says("is not what content_hash says")) return Outcome::kHashMismatch;
    return Outcome::kRefused;
  }
}

Campaign RunCampaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit) {
  const std::string path = golden_samples::TemporaryPath("damaged.h5");
  std::vector<std::string> bytes;
  std::vector<GoldenFile> contents;
  const auto add = [&](const std::string& file) {
    bytes.push_back(golden_samples::ReadBytes(file));
    contents.push_back(GoldenReader::Open(file).ReadAll());
  };
  WriteGoldenFile(path, golden_samples::SmallContent());
  add(path);
  WriteGoldenFile(path, golden_samples::FixtureContent());
  add(path);
  add(std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/fixture_python.h5");

  Campaign campaign;
  const auto start = Clock::now();
  for (int i = 0; i < files; ++i) {
    const auto which = static_cast<size_t>(i) % bytes.size();
    const auto kind = static_cast<size_t>(i) / bytes.size() % kAllDamage.size();
    const uint64_t file_seed = seed + static_cast<uint64_t>(i);
    golden_samples::WriteBytes(path, Damaged(bytes[which], kAllDamage[kind], file_seed));
    const auto file_start = Clock::now();
    const Outcome outcome = ReadDamaged(path, contents[which], hang_limit);
    const std::chrono::duration<double> taken = Clock::now() - file_start;
    campaign.slowest_s = std::max(campaign.slowest_s, taken.count());
    ++campaign.counts[kind][static_cast<size_t>(outcome)];
    if (outcome == Outcome::kSilentChange || outcome == Outcome::kWrongError) {
      fmt::print(stderr, "{}: file {} of the campaign, {}, seed {}\n", Name(outcome), i,
                 Name(kAllDamage[kind]), file_seed);
    }
  }
  campaign.total_s = std::chrono::duration<double>(Clock::now() - start).count();
  std::filesystem::remove(path);
  return campaign;
}

namespace {

Outcome ReadFlipped(const std::string& path, std::string bytes, size_t byte,
                    const GoldenFile& original) {
  bytes[byte] = static_cast<char>(~bytes[byte]);
  golden_samples::WriteBytes(path, bytes);
  try {
    return GoldenReader::Open(path).ReadAll() == original ? Outcome::kUnchanged
                                                          : Outcome::kSilentChange;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnreadableFile) return Outcome::kWrongError;
    return error.message().find("content_hash says") != std::string::npos ? Outcome::kHashMismatch
                                                                          : Outcome::kRefused;
  }
}

}  // namespace

OutcomeCounts RunByteFlips(size_t stride, std::chrono::milliseconds hang_limit) {
  const std::string path = golden_samples::TemporaryPath("flipped.h5");
  GoldenFile content = golden_samples::SmallContent();
  content.content_hash = WriteGoldenFile(path, content);
  const std::string bytes = golden_samples::ReadBytes(path);
  ChildLimits limits;
  limits.since_progress = hang_limit;
  OutcomeCounts counts{};
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t first = at;
    const ChildOutcome outcome = RunSupervised(
        [&](ChildChannel& channel) {
          for (size_t i = first; i < bytes.size(); i += stride) {
            const std::byte result{
                static_cast<unsigned char>(ReadFlipped(path, bytes, i, content))};
            channel.Send({&result, 1});
          }
          return 0;
        },
        limits,
        [&](const Message& message) {
          ++counts[static_cast<size_t>(message[0])];
          at += stride;
        });
    if (outcome.Succeeded()) break;
    ++counts[static_cast<size_t>(outcome.end == ChildEnd::kTimedOut ? Outcome::kHung
                                                                    : Outcome::kCrashed)];
    at += stride;
  }
  std::filesystem::remove(path);
  return counts;
}

}  // namespace kvcheck::golden_damage
