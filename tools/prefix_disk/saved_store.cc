#include "tools/prefix_disk/saved_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "golden/safetensors_header.h"
#include "reference/spec/error.h"
#include "tools/prefix_disk/block_file.h"

namespace kvcheck {
namespace {

using optimized::BlockState;
using optimized::KeptBlock;
using optimized::KeptStore;

constexpr std::string_view kLayout = "kvcheck prefix store 1";

class StoreHash {
 public:
  StoreHash(const std::string& setup, const std::string& epoch) {
    const std::string text = fmt::format("{}\n{}\n{}\n", kLayout, setup, epoch);
    hash_.Update(text.data(), text.size());
  }
  void Update(const void* bytes, size_t size) { hash_.Update(bytes, size); }
  std::string Finish() { return HexOf(hash_.Finish()); }

 private:
  Sha256 hash_;
};

// A field of the identity: its bytes in hexadecimal digits behind a letter; "-": absent.
std::string FieldText(const std::optional<std::string>& field) {
  if (!field) return "-";
  std::string text = "t";
  for (const char c : *field) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// Words and numbers of one line; what does not parse makes it bad.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}
  std::string_view Word() {
    const size_t end = std::min(text_.find(' '), text_.size());
    const std::string_view word = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return word;
  }
  template <typename Number>
  Number Next() {
    return NumberOf<Number>(Word(), 10);
  }
  std::optional<std::string> Field() {
    std::string_view word = Word();
    if (word == "-") return std::nullopt;
    is_good_ = is_good_ && word.starts_with("t") && word.size() % 2 == 1;
    std::string field;
    for (size_t i = 1; is_good_ && i < word.size(); i += 2) {
      field.push_back(static_cast<char>(NumberOf<unsigned char>(word.substr(i, 2), 16)));
    }
    return field;
  }
  bool is_empty() const { return text_.empty(); }
  bool is_good() const { return is_good_; }

 private:
  template <typename Number>
  Number NumberOf(std::string_view word, int base) {
    Number number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
    is_good_ = is_good_ && error == std::errc() && end == word.data() + word.size();
    return number;
  }
  std::string_view text_;
  bool is_good_ = true;
};

// False: no index of such a store.
bool ReadIndex(const PrefixSetup& setup, std::string_view index, std::span<const std::byte> bytes,
               KeptStore* store) {
  int64_t offset = 0;
  while (!index.empty()) {
    const size_t end = std::min(index.find('\n'), index.size());
    Line line(index.substr(0, end));
    index.remove_prefix(std::min(end + 1, index.size()));
    const std::string_view what = line.Word();
    if (what == "prompt") {
      store->prompts.push_back(line.Next<int64_t>());
      const int64_t last = store->prompts.back();
      if (!line.is_good() || last < 0 || last >= std::ssize(store->blocks)) return false;
      continue;
    }
    KeptBlock block;
    block.before = line.Next<int64_t>();
    const auto state = line.Next<int>();
    block.who.model = line.Field();
    block.who.salt = line.Field();
    block.who.adapter = line.Field();
    block.who.version = line.Next<int64_t>();
    block.who.image = line.Field();
    while (line.is_good() && !line.is_empty()) block.tokens.push_back(line.Next<int32_t>());
    if (what != "block" || !line.is_good() || block.before < -1 ||
        block.before >= std::ssize(store->blocks) || state < 0 ||
        state > static_cast<int>(BlockState::kCoded) ||
        std::ssize(block.tokens) != setup.block_tokens) {
      return false;
    }
    block.state = static_cast<BlockState>(state);
    block.size = CacheBytes(setup, block.state, setup.block_tokens);
    if (block.size > std::ssize(bytes) - offset) return false;
    auto copy = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(block.size));
    std::memcpy(copy.get(), bytes.data() + offset, static_cast<size_t>(block.size));
    block.bytes = std::move(copy);
    offset += block.size;
    store->blocks.push_back(std::move(block));
  }
  return offset == std::ssize(bytes);
}

}  // namespace

SavedStore WriteSavedStore(const PrefixSetup& setup, const std::string& epoch,
                           const KeptStore& store) {
  SavedStore saved;
  int64_t bytes = 0;
  for (const KeptBlock& block : store.blocks) {
    const PrefixIdentity& who = block.who;
    saved.index +=
        fmt::format("block {} {} {} {} {} {} {} {}\n", block.before, static_cast<int>(block.state),
                    FieldText(who.model), FieldText(who.salt), FieldText(who.adapter), who.version,
                    FieldText(who.image), fmt::join(block.tokens, " "));
    bytes += block.size;
  }
  for (const int64_t prompt : store.prompts) saved.index += fmt::format("prompt {}\n", prompt);
  const std::string setup_text = SetupText(setup);
  StoreHash hash(setup_text, epoch);
  hash.Update(saved.index.data(), saved.index.size());
  for (const KeptBlock& block : store.blocks) {
    hash.Update(block.bytes.get(), static_cast<size_t>(block.size));
  }
  std::string json =
      fmt::format(R"({{"__metadata__":{{"layout":"{}","setup":"{}","epoch":"{}","sha256":"{}"}},)"
                  R"("index":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}},)"
                  R"("blocks":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                  kLayout, setup_text, epoch, hash.Finish(), saved.index.size(), saved.index.size(),
                  bytes, saved.index.size(), static_cast<int64_t>(saved.index.size()) + bytes);
  json.append((8 - json.size() % 8) % 8, ' ');
  const auto size = static_cast<uint64_t>(json.size());
  saved.header.assign(reinterpret_cast<const char*>(&size), sizeof size);
  saved.header += json;
  return saved;
}

std::string ReadSavedStore(const PrefixSetup& setup, const std::string& epoch,
                           std::span<const std::byte> file, const std::string& path,
                           KeptStore* store) {
  constexpr const char* kDamaged = "the file is damaged, or another program's; save it again";
  uint64_t size = 0;
  if (file.size() < sizeof size) return kDamaged;
  std::memcpy(&size, file.data(), sizeof size);
  file = file.subspan(sizeof size);
  if (size > file.size()) return kDamaged;
  const std::span<const std::byte> data = file.subspan(static_cast<size_t>(size));
  SafetensorsHeader header;
  try {
    header = ParseSafetensorsHeader(
        {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(size)}, data.size(),
        /*max_tensors=*/3, path);  // __metadata__ counts
  } catch (const Error&) {
    return kDamaged;
  }
  const std::string setup_text = header.metadata["setup"];
  const std::string its_epoch = header.metadata["epoch"];
  StoreHash hash(setup_text, its_epoch);
  hash.Update(data.data(), data.size());
  // Of an empty store both tensors are empty, and either is the first.
  const auto index_tensor =
      std::find_if(header.tensors.begin(), header.tensors.end(),
                   [](const SafetensorsTensor& tensor) { return tensor.name == "index"; });
  if (header.metadata["layout"] != kLayout || header.metadata["sha256"] != hash.Finish() ||
      index_tensor == header.tensors.end() || index_tensor->begin != 0) {
    return kDamaged;
  }
  if (setup_text != SetupText(setup)) {
    return fmt::format("it was saved with other settings: {}", setup_text);
  }
  if (its_epoch != epoch) return "it was saved under other weights";
  const auto split = static_cast<size_t>(index_tensor->end);
  const std::string_view index(reinterpret_cast<const char*>(data.data()), split);
  *store = {};
  return ReadIndex(setup, index, data.subspan(split), store) ? "" : kDamaged;
}

}  // namespace kvcheck
