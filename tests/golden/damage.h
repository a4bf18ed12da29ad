// Damage to files, from a seed: truncations, flipped bits, and sizes swapped for other sizes (words
// of 8 bytes, or decimal numbers in the header of a safetensors file); and what a reader made of a
// damaged file.

#ifndef TESTS_GOLDEN_DAMAGE_H_
#define TESTS_GOLDEN_DAMAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvcheck::golden_damage {

enum class Damage { kTruncation, kOneBit, kEightBits, kManyBits, kSwappedSize };
inline constexpr std::array<Damage, 5> kAllDamage = {Damage::kTruncation, Damage::kOneBit,
                                                     Damage::kEightBits, Damage::kManyBits,
                                                     Damage::kSwappedSize};
std::string_view Name(Damage damage);

// The bytes with one damage of the kind; always different from the original.
// Precondition: bytes are at least 64.
std::string Damaged(const std::string& bytes, Damage damage, uint64_t seed);

enum class Outcome {
  kRefused,       // HDF5 or the schema
  kHashMismatch,  // readable, and found by the content hash
  kDifferent,     // readable, and an exact comparison with the original finds the difference
  kUnchanged,     // the damage touched nothing that is read
  kCrashed,       // the HDF5 library crashed, in the child
  kHung,          // the HDF5 library looped, in the child
  kSilentChange,  // other content was read without complaint: what must never happen
  kWrongError,    // refused by another error than an unreadable file
};
inline constexpr std::array<Outcome, 8> kAllOutcomes = {
    Outcome::kRefused, Outcome::kHashMismatch, Outcome::kDifferent,    Outcome::kUnchanged,
    Outcome::kCrashed, Outcome::kHung,         Outcome::kSilentChange, Outcome::kWrongError};
std::string_view Name(Outcome outcome);

using OutcomeCounts = std::array<int, kAllOutcomes.size()>;
inline int CountOf(const OutcomeCounts& counts, Outcome outcome) {
  return counts[static_cast<size_t>(outcome)];
}
// "12 refused, 3 hash mismatch, ...".
std::string ToLine(const OutcomeCounts& counts);

// A table of counts, damage by outcome.
using Counts = std::array<OutcomeCounts, kAllDamage.size()>;
std::string ToTable(const Counts& counts);
int Total(const Counts& counts, Outcome outcome);

}  // namespace kvcheck::golden_damage

#endif  // TESTS_GOLDEN_DAMAGE_H_
