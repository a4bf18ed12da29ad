#include "tools/prefix_disk/block_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

using optimized::BlockState;

constexpr std::string_view kLayout = "kvcheck prefix block 1";

std::string_view NameOf(BlockState state) {
  constexpr std::string_view kNames[] = {"plain", "decoded", "coded"};
  return kNames[static_cast<size_t>(state)];
}

// As safetensors names it.
std::string_view TypeName(DType type) {
  switch (type) {
    case DType::kFloat64:
      return "F64";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat8E4M3FN:
      return "F8_E4M3";
    case DType::kFloat8E5M2:
      return "F8_E5M2";
    case DType::kInt8:
      return "I8";
    case DType::kInt32:
      return "I32";
    case DType::kUInt32:
      return "U32";
    default:
      return "U8";
  }
}

// Tensors and metadata of one file, as a header's JSON. Names and texts are of characters that JSON
// takes as they are: identities are printed with escapes (Print).
class Header {
 public:
  void Tensor(const std::string& name, DType type, const std::vector<int64_t>& shape) {
    int64_t bytes = static_cast<int64_t>(SizeInBytes(type));
    for (const int64_t extent : shape) bytes *= extent;
    tensors_ += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                            TypeName(type), fmt::join(shape, ","), at_, at_ + bytes);
    at_ += bytes;
  }
  // A number of a layer's state, which mlx-lm stores as a tensor.
  void Scalar(const std::string& name, int64_t value) {
    Tensor(name, DType::kInt32, {});
    const auto number = static_cast<int32_t>(value);
    scalars_.append(reinterpret_cast<const char*>(&number), sizeof number);
    ++scalar_count_;
    metadata_[fmt::format("2.{}.0", scalar_count_)] = name;
    metadata_[fmt::format("2.{}.1", scalar_count_)] = "scalar";
  }
  void Metadata(const std::string& name, const std::string& value) { metadata_[name] = value; }
  int64_t bytes() const { return at_; }

  std::string Text() const {
    std::string json = R"({"__metadata__":{)";
    for (const auto& [name, value] : metadata_) {
      json += fmt::format(R"({}"{}":"{}")", json.back() == '{' ? "" : ",", name, value);
    }
    json += "}" + tensors_ + "}";
    // Data begin at a multiple of 8.
    json.append((8 - json.size() % 8) % 8, ' ');
    const auto size = static_cast<uint64_t>(json.size());
    std::string text(reinterpret_cast<const char*>(&size), sizeof size);
    return text + json + scalars_;
  }
  size_t scalar_bytes() const { return scalars_.size(); }

 private:
  std::map<std::string, std::string> metadata_;
  std::string tensors_;
  std::string scalars_;
  int64_t scalar_count_ = 0;
  int64_t at_ = 0;
};

// The affine format that K and V of the setup share, if mlx-lm has a cache for it.
std::optional<AffineFormat> MlxFormat(const PrefixSetup& setup) {
  const KvFormat k = setup.K();
  const KvFormat v = setup.V();
  if (!(k == v)) return std::nullopt;
  return std::visit(
      []<typename F>(const F& family) -> std::optional<AffineFormat> {
        if constexpr (std::is_same_v<F, AffineFormat>) {
          return family;
        } else {
          return std::nullopt;
        }
      },
      k);
}

Header CacheTensors(const PrefixSetup& setup, BlockState state, int64_t tokens) {
  Header header;
  const bool is_coded = state == BlockState::kCoded;
  const std::optional<AffineFormat> affine = is_coded ? MlxFormat(setup) : std::nullopt;
  const bool is_mlx = !is_coded || affine.has_value();
  if (is_mlx) {
    for (int64_t layer = 0; layer < setup.layers; ++layer) {
      header.Metadata(fmt::format("1.{}", layer), is_coded ? "QuantizedKVCache" : "KVCache");
      header.Scalar(fmt::format("{}.2", layer), tokens);
      if (!affine) continue;
      header.Scalar(fmt::format("{}.3", layer), affine->group_size);
      header.Scalar(fmt::format("{}.4", layer), affine->bits);
    }
    header.Metadata("2.0", "");
  }
  for (int64_t layer = 0; layer < setup.layers; ++layer) {
    for (const bool is_key : {true, false}) {
      const int64_t dim = is_key ? setup.k_dim : setup.v_dim;
      const int part = is_key ? 0 : 1;
      if (!is_coded) {
        header.Tensor(fmt::format("{}.{}", layer, part), setup.x, {1, setup.kv_heads, tokens, dim});
        continue;
      }
      int index = 0;
      for (const Plane& plane : PlanesOf(is_key ? setup.K() : setup.V(), dim)) {
        header.Tensor(is_mlx ? fmt::format("{}.{}.{}", layer, part, index++)
                             : fmt::format("{}.{}.{}", layer, is_key ? "k" : "v", plane.name),
                      plane.dtype, {1, setup.kv_heads, tokens, plane.elements});
      }
    }
  }
  return header;
}

}  // namespace

std::string HexOf(const Sha256Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

std::string SetupText(const PrefixSetup& setup) {
  return fmt::format("block {} layers {} heads {} dims {} {} x {} k {} v {}", setup.block_tokens,
                     setup.layers, setup.kv_heads, setup.k_dim, setup.v_dim, ShortName(setup.x),
                     Print(setup.K()), Print(setup.V()));
}

Sha256Digest RootKey(const PrefixSetup& setup, const PrefixIdentity& who) {
  // A line each: neither text has a line end.
  const std::string text = fmt::format("{}\n{}\n{}\n", kLayout, SetupText(setup), Print(who));
  Sha256 hash;
  hash.Update(text.data(), text.size());
  return hash.Finish();
}

Sha256Digest NextKey(const Sha256Digest& before, std::span<const int32_t> tokens) {
  Sha256 hash;
  hash.Update(before.data(), before.size());
  hash.Update(tokens.data(), tokens.size_bytes());
  return hash.Finish();
}

std::string CacheHeader(const PrefixSetup& setup, BlockState state, int64_t tokens,
                        const std::map<std::string, std::string>& metadata) {
  Header header = CacheTensors(setup, state, tokens);
  for (const auto& [name, value] : metadata) header.Metadata("0." + name, value);
  return header.Text();
}

int64_t CacheBytes(const PrefixSetup& setup, BlockState state, int64_t tokens) {
  const Header header = CacheTensors(setup, state, tokens);
  return header.bytes() - static_cast<int64_t>(header.scalar_bytes());
}

std::string BlockFileHeader(const BlockFacts& facts) {
  return CacheHeader(*facts.setup, facts.state, facts.setup->block_tokens,
                     {{"layout", std::string(kLayout)},
                      {"setup", SetupText(*facts.setup)},
                      {"who", Print(facts.who)},
                      {"tokens", fmt::format("{}", fmt::join(facts.tokens, " "))},
                      {"position", fmt::format("{}", facts.position)},
                      {"before", HexOf(facts.before)},
                      {"key", HexOf(facts.key)},
                      {"epoch", facts.epoch},
                      {"state", std::string(NameOf(facts.state))}});
}

}  // namespace kvcheck
