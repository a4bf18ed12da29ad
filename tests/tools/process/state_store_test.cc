// Forged files of saved caches, whose header is right whatever is behind it: read in a child, they
// give a record or are refused, and never harm this process.

#include <gtest/gtest.h>

#include <filesystem>

#include "golden/content_hash.h"
#include "golden/hdf5_state_store.h"
#include "tests/golden/damage.h"
#include "tests/golden/golden_samples.h"
#include "tools/process/untrusted_reader.h"

namespace kvcheck {
namespace {

using golden_damage::Damage;

// The header that belongs to these bytes.
std::string Header(const std::string& bytes) {
  Sha256 hash;
  hash.Update(bytes.data(), bytes.size());
  std::string header = "kvcheck state 1\nsha256 ";
  for (const std::byte byte : hash.Finish()) {
    constexpr const char* kDigits = "0123456789abcdef";
    header += {kDigits[static_cast<size_t>(byte) / 16], kDigits[static_cast<size_t>(byte) % 16]};
  }
  header += "\nbytes " + std::to_string(bytes.size()) + "\n";
  header.resize(static_cast<size_t>(kStateHeaderBytes), '\0');
  return header;
}

TEST(ForgedStates, AreReadOrRefusedInAChild) {
  const std::string folder = golden_samples::TemporaryPath("forged");
  std::filesystem::create_directory(folder);
  UntrustedOptions options;
  options.child.since_progress = std::chrono::hours(1000);  // ctest ends what hangs
  Hdf5StateStore store(folder, [&](const std::string& path) -> std::unique_ptr<TensorSource> {
    return std::make_unique<UntrustedFile>(path, options);
  });
  StateRecord record;
  record.attributes = {{kStateKind, "a kind"}, {kStateVersion, "1"}};
  record.tensors["k"] = golden_samples::Counting(DType::kUInt8, {{"T", 30}, {"", 5}});
  record.tensors["rows"] = golden_samples::Counting(DType::kInt64, {{"B", 2}, {"", 3}});
  store.Put("s", record);
  const std::string path = store.PathOf("s");
  const std::string body = golden_samples::ReadBytes(path).substr(kStateHeaderBytes);
  ASSERT_TRUE(golden_samples::ReadBytes(path).starts_with(Header(body)));
  int refused = 0;
  int read = 0;
  for (const Damage damage : golden_damage::kAllDamage) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::string forged = golden_damage::Damaged(body, damage, seed);
      golden_samples::WriteBytes(path, Header(forged) + forged);
      StateRecord found;
      if (store.Get("s", &found) == StoreStatus::kOk) {
        ++read;
        for (const auto& [name, tensor] : found.tensors) {
          EXPECT_LE(tensor.bytes.size(), forged.size()) << name;
        }
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(read, 0);  // some damage touches data alone, and the hash is a forger's
  golden_samples::WriteBytes(path, Header(body) + body);
  StateRecord again;
  ASSERT_EQ(store.Get("s", &again), StoreStatus::kOk);
  EXPECT_TRUE(again == record);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvcheck
