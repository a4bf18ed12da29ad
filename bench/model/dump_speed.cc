// Two base files of llama-perplexity compared as `kvcheck agree --logits` compares them, beside the
// best read of the same files in the same round, and the resident memory of the comparison.
//
//   dump_speed [GIB [FOLDER [ROUNDS [VOCABULARY]]]]     1 /tmp 3 32000
//
// Makes two files of GIB each in FOLDER and removes them. Both are in the page cache where memory
// is large enough. Exit 1: 200 MB of resident memory or more, or less than 55 % of the best read.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "bench/compare/beside_reads.h"
#include "tools/agree/compare_dumps.h"

namespace kvcheck {
namespace {

constexpr double kMostResidentBytes = 200e6;
constexpr double kLeastShare = 0.55;
// Different rows: enough that no table of a row stays in a cache.
constexpr size_t kRows = 64;

template <typename Number>
void Append(Number value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Rows as llama-perplexity writes them, of logits of a normal distribution with a long upper tail.
// seed: of what differs between two engines.
std::vector<std::string> Rows(size_t vocabulary, uint64_t seed) {
  std::mt19937_64 common(1);
  std::mt19937_64 own(seed);
  std::normal_distribution<float> logits(0, 2.5F);
  std::normal_distribution<float> noise(0, 0.01F);
  std::vector<std::string> rows(kRows);
  std::vector<float> row(vocabulary);
  for (std::string& bytes : rows) {
    for (float& logit : row) logit = logits(common) + noise(own);
    // A likely token, whose margin the noise does not reach.
    row[common() % vocabulary] = 16;
    const float most = *std::max_element(row.begin(), row.end());
    const float least = std::max(*std::min_element(row.begin(), row.end()), most - 16);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit - most));
    const float scale = (most - least) / 65535;
    Append(scale, &bytes);
    Append(least - most - static_cast<float>(std::log(sum)), &bytes);
    for (const float logit : row) {
      Append(static_cast<uint16_t>(logit > least ? std::lround((logit - least) / scale) : 0),
             &bytes);
    }
    if (vocabulary % 2 == 1) Append(uint16_t{0}, &bytes);
  }
  return rows;
}

// At least `bytes` in chunks of 512 tokens. Returns the positions.
int64_t WriteBase(const std::string& path, int64_t bytes, size_t vocabulary, uint64_t seed) {
  constexpr int32_t kContext = 512;
  constexpr int64_t kPerChunk = kContext - 1 - kContext / 2;
  const std::vector<std::string> rows = Rows(vocabulary, seed);
  const auto row_bytes = static_cast<int64_t>(rows.front().size());
  const int64_t chunks =
      std::max<int64_t>(1, (bytes + kPerChunk * row_bytes - 1) / (kPerChunk * row_bytes));
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  std::string head = "_logits_";
  Append(kContext, &head);
  Append(static_cast<int32_t>(vocabulary), &head);
  Append(static_cast<int32_t>(chunks), &head);
  for (int64_t i = 0; i < chunks * kContext; ++i) {
    Append(static_cast<int32_t>(i % static_cast<int64_t>(vocabulary)), &head);
  }
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  for (int64_t i = 0; i < chunks * kPerChunk; ++i) {
    const std::string& row = rows[static_cast<size_t>(i) % kRows];
    file.write(row.data(), static_cast<std::streamsize>(row.size()));
  }
  file.close();
  if (!file) {
    fmt::print(stderr, "dump_speed: {} cannot be written\n", path);
    std::exit(2);
  }
  return chunks * kPerChunk;
}

int Measure(double gib, const std::string& folder, int rounds, size_t vocabulary) {
  const std::string gold = folder + fmt::format("/kvcheck-{}-gold.kld", getpid());
  const std::string got = folder + fmt::format("/kvcheck-{}-got.kld", getpid());
  const auto bytes = static_cast<int64_t>(gib * 0x1p30);
  const int64_t positions = WriteBase(gold, bytes, vocabulary, 2);
  WriteBase(got, bytes, vocabulary, 3);
  std::vector<MeasuredPass> passes;
  for (const int threads : {1, 2}) {
    passes.push_back(
        {fmt::format("kvcheck agree --logits, {} threads", threads), [&, threads] {
           const auto start = std::chrono::steady_clock::now();
           const DumpReport report = CompareDumps({gold, got, "", {}, {}, threads, false, 0}, {});
           if (report.figures.positions != positions) _exit(1);
           return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
         }});
  }
  const std::vector<PassBesideReads> results = PrintBesideReads(gold, got, passes, rounds);
  const double each = 1e-9 * static_cast<double>(std::filesystem::file_size(gold));
  std::filesystem::remove(gold);
  std::filesystem::remove(got);
  fmt::print("2 files of {:.2f} GB, {} positions of {} tokens each\n", each, positions, vocabulary);
  const auto better = [](const PassBesideReads& x, const PassBesideReads& y) {
    return x.share < y.share;
  };
  const double share = std::max_element(results.begin(), results.end(), better)->share;
  const double resident_bytes = results.back().resident_mib * 0x1p20;
  return share >= kLeastShare && resident_bytes < kMostResidentBytes ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) {
    return std::string(i < argc ? argv[i] : otherwise);
  };
  try {
    return kvcheck::Measure(std::stod(argument(1, "1")), argument(2, "/tmp"),
                            std::stoi(argument(3, "3")), std::stoul(argument(4, "32000")));
  } catch (const std::exception& error) {
    fmt::print(stderr, "dump_speed: {}\nusage: dump_speed [GIB [FOLDER [ROUNDS [VOCABULARY]]]]\n",
               error.what());
    return 2;
  }
}
