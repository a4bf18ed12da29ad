#include "tests/golden/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace kvcheck::golden_damage {
namespace {

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t Below(size_t n) { return static_cast<size_t>(Next() % n); }

 private:
  uint64_t state_;
};

void FlipBits(std::string& bytes, int count, Random& random) {
  for (int i = 0; i < count; ++i) {
    char& byte = bytes[random.Below(bytes.size())];
    byte = static_cast<char>(byte ^ (1 << random.Below(8)));
  }
}

uint64_t WordAt(const std::string& bytes, size_t at) {
  uint64_t word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// A word that could be a size, an offset or a count becomes another: of the file's, or an extreme.
void SwapSize(std::string& bytes, Random& random) {
  const size_t words = bytes.size() / 8;
  size_t at = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    at = 8 * random.Below(words);
    const uint64_t word = WordAt(bytes, at);
    if (word == ~uint64_t{0} || (word > 0 && word <= 4 * bytes.size())) break;
  }
  const uint64_t old = WordAt(bytes, at);
  const uint64_t others[] = {0,
                             1,
                             old - 1,
                             old + 1,
                             old * 2,
                             old + 8,
                             bytes.size(),
                             uint64_t{1} << 31,
                             uint64_t{1} << 32,
                             uint64_t{1} << 62,
                             ~uint64_t{0},
                             WordAt(bytes, 8 * random.Below(words))};
  uint64_t word = others[random.Below(std::size(others))];
  if (word == old) word = old + 1;
  std::memcpy(bytes.data() + at, &word, sizeof word);
}

// A number in the JSON of a safetensors header becomes another.
void SwapNumber(std::string& bytes, Random& random) {
  const size_t end = std::min<size_t>(bytes.size(), 8 + WordAt(bytes, 0));
  std::vector<std::pair<size_t, size_t>> numbers;  // position, length
  for (size_t i = 8; i < end; ++i) {
    size_t length = 0;
    while (i + length < end && bytes[i + length] >= '0' && bytes[i + length] <= '9') ++length;
    if (length > 0) numbers.emplace_back(i, length);
    i += length;
  }
  const auto text = [&](const auto& number) { return bytes.substr(number.first, number.second); };
  const auto& chosen = numbers[random.Below(numbers.size())];
  const uint64_t old = std::stoull(text(chosen));
  const std::string others[] = {"0",
                                "1",
                                std::to_string(old + 1),
                                std::to_string(old - 1),
                                std::to_string(old * 2),
                                std::to_string(uint64_t{1} << 32),
                                std::to_string(uint64_t{1} << 63),
                                std::to_string(~uint64_t{0}),
                                "99999999999999999999",
                                "-1",
                                text(numbers[random.Below(numbers.size())])};
  const std::string number = others[random.Below(std::size(others))];
  // The length of the header goes with it, half of the time.
  const uint64_t length = WordAt(bytes, 0) + number.size() - chosen.second;
  bytes.replace(chosen.first, chosen.second, number);
  if (random.Below(2) == 0) std::memcpy(bytes.data(), &length, sizeof length);
}

bool IsSafetensors(const std::string& bytes) { return bytes[8] == '{'; }

}  // namespace

std::string_view Name(Damage damage) {
  switch (damage) {
    case Damage::kTruncation:
      return "truncation";
    case Damage::kOneBit:
      return "1 bit";
    case Damage::kEightBits:
      return "8 bits";
    case Damage::kManyBits:
      return "64 bits";
    case Damage::kSwappedSize:
      return "swapped size";
  }
  return "";
}

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRefused:
      return "refused";
    case Outcome::kHashMismatch:
      return "hash mismatch";
    case Outcome::kDifferent:
      return "difference";
    case Outcome::kUnchanged:
      return "unchanged";
    case Outcome::kCrashed:
      return "crash contained";
    case Outcome::kHung:
      return "hang contained";
    case Outcome::kSilentChange:
      return "SILENT CHANGE";
    case Outcome::kWrongError:
      return "WRONG ERROR";
  }
  return "";
}

std::string Damaged(const std::string& bytes, Damage damage, uint64_t seed) {
  Random random(seed);
  while (true) {
    std::string damaged = bytes;
    switch (damage) {
      case Damage::kTruncation:
        damaged.resize(random.Below(bytes.size()));
        break;
      case Damage::kOneBit:
        FlipBits(damaged, 1, random);
        break;
      case Damage::kEightBits:
        FlipBits(damaged, 8, random);
        break;
      case Damage::kManyBits:
        FlipBits(damaged, 64, random);
        break;
      case Damage::kSwappedSize:
        // The length of the header is one size of some dozens in a safetensors file.
        if (IsSafetensors(bytes) && random.Below(16) != 0) {
          SwapNumber(damaged, random);
        } else {
          SwapSize(damaged, random);
        }
        break;
    }
    if (damaged != bytes) return damaged;
  }
}

std::string ToLine(const OutcomeCounts& counts) {
  std::string line;
  for (Outcome outcome : kAllOutcomes) {
    line +=
        fmt::format("{}{} {}", line.empty() ? "" : ", ", CountOf(counts, outcome), Name(outcome));
  }
  return line + '\n';
}

int Total(const Counts& counts, Outcome outcome) {
  int total = 0;
  for (const auto& row : counts) total += row[static_cast<size_t>(outcome)];
  return total;
}

std::string ToTable(const Counts& counts) {
  std::string table = fmt::format("{:<14}", "damage");
  for (Outcome outcome : kAllOutcomes) table += fmt::format("{:>16}", Name(outcome));
  table += '\n';
  for (Damage damage : kAllDamage) {
    table += fmt::format("{:<14}", Name(damage));
    for (int count : counts[static_cast<size_t>(damage)]) table += fmt::format("{:>16}", count);
    table += '\n';
  }
  table += fmt::format("{:<14}", "all");
  for (Outcome outcome : kAllOutcomes) table += fmt::format("{:>16}", Total(counts, outcome));
  return table + '\n';
}

}  // namespace kvcheck::golden_damage
