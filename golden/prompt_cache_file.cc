#include "golden/prompt_cache_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::array<std::string_view, 2> kPlainClasses = {"KVCache", "ConcatenateKVCache"};
constexpr std::string_view kCodedClass = "QuantizedKVCache";
constexpr std::array<const char*, 3> kPlanes = {"codes", "scales", "biases"};
constexpr int64_t kMostBits = 8;
constexpr int64_t kWordBits = 32;
constexpr int64_t kMostLayers = 100'000;

const std::string* Metadata(const FileIndex& index, const std::string& key) {
  const auto root = index.objects.find("/");
  if (root == index.objects.end()) return nullptr;
  const auto found = root->second.attributes.find("metadata." + key);
  return found == root->second.attributes.end() ? nullptr
                                                : std::get_if<std::string>(&found->second);
}

// Of 0.32 the list of scalars begins with an empty text, where older files name classes.
bool IsOlder(const FileIndex& index) {
  const std::string* scalars = Metadata(index, "2.0");
  return scalars == nullptr || !scalars->empty();
}

// Precondition: of a file that IsPromptCache.
std::string ClassKey(const FileIndex& index, int64_t layer) {
  return fmt::format("{}.{}", IsOlder(index) ? 2 : 1, layer);
}

class Reader {
 public:
  explicit Reader(TensorSource* source) : source_(source), index_(source->index()) {}

  PromptCache Read() {
    PromptCache cache;
    const std::string prefix = fmt::format("metadata.{}.", IsOlder(index_) ? 1 : 0);
    for (const auto& [key, value] : index_.objects.at("/").attributes) {
      const std::string* text = std::get_if<std::string>(&value);
      if (text != nullptr && key.starts_with(prefix))
        cache.about[key.substr(prefix.size())] = *text;
    }
    for (int64_t layer = 0; layer < kMostLayers; ++layer) {
      const std::string* name = Metadata(index_, ClassKey(index_, layer));
      if (name == nullptr) break;
      cache.layers.push_back(ReadLayer(layer, *name));
    }
    return cache;
  }

 private:
  [[noreturn]] void Unreadable(int64_t layer, const std::string& what) const {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("prompt cache, layer {}: {}", layer, what),
                source_->path());
  }
  [[noreturn]] void Unsupported(int64_t layer, const std::string& what) const {
    throw Error(ErrorCode::kUnsupported, fmt::format("prompt cache, layer {}: {}", layer, what),
                source_->path());
  }

  // Of codes, group sizes and bits in the order of K and V, one for both or two.
  struct State {
    std::optional<int64_t> tokens;
    std::vector<int64_t> bits;
    std::vector<int64_t> groups;
  };

  PromptCacheLayer ReadLayer(int64_t number, const std::string& class_name) {
    const bool is_coded = class_name == kCodedClass;
    if (!is_coded &&
        std::find(kPlainClasses.begin(), kPlainClasses.end(), class_name) == kPlainClasses.end()) {
      Unsupported(number, fmt::format("a {} holds no whole prompt: KVCache, ConcatenateKVCache and "
                                      "{} are read",
                                      class_name, kCodedClass));
    }
    if (index_.objects.count(fmt::format("/{}.0{}", number, is_coded ? ".0" : "")) == 0) {
      Unsupported(number, "it has no tokens");
    }
    const State state = StateOf(number, is_coded);
    PromptCacheLayer layer;
    for (const bool is_value : {false, true}) {
      const std::string name = is_value ? "v" : "k";
      KvFormat& format = is_value ? layer.v : layer.k;
      int64_t& dim = is_value ? layer.v_dim : layer.k_dim;
      if (is_coded) {
        const AffineFormat affine = TakeCodes(number, is_value, state, &layer.tensors);
        dim = layer.tensors.at(name + "_scales").shape.RowLength() * affine.group_size;
        format = affine;
      } else {
        const Tensor& tensor = layer.tensors[name] =
            Take(number, Path(number, is_value), is_value ? "Dv" : "Dk", state.tokens);
        const PlainFormat plain{tensor.dtype};
        if (!plain.Exists()) {
          Unreadable(number, fmt::format("its {} are of a type that no rows have", name));
        }
        dim = tensor.shape.RowLength();
        format = plain;
      }
      SetExtents(number, layer.tensors.at(is_coded ? name + "_codes" : name).shape, is_value,
                 &layer);
    }
    return layer;
  }

  static std::string Path(int64_t layer, bool is_value) {
    return fmt::format("/{}.{}", layer, is_value ? 1 : 0);
  }

  State StateOf(int64_t layer, bool is_coded) {
    const std::vector<int64_t> numbers = Numbers(layer);
    State state;
    if (!is_coded) {
      if (!numbers.empty()) state.tokens = numbers[0];
      return state;
    }
    if (numbers.size() < 3 || numbers.size() > 5) {
      Unreadable(layer, fmt::format("its state has {} numbers, not 3 to 5", numbers.size()));
    }
    // Four: a step of growth stands before them.
    const size_t first = numbers.size() == 4 ? 1 : 0;
    state.tokens = numbers[first];
    for (size_t i = first + 1; i < numbers.size(); ++i) {
      (numbers[i] <= kMostBits ? state.bits : state.groups).push_back(numbers[i]);
    }
    if (state.bits.size() != state.groups.size()) {
      Unreadable(layer, "its state does not say group sizes and bits");
    }
    return state;
  }

  AffineFormat TakeCodes(int64_t layer, bool is_value, const State& state, TensorMap* tensors) {
    const std::string name = is_value ? "v" : "k";
    for (size_t plane = 0; plane < kPlanes.size(); ++plane) {
      (*tensors)[name + "_" + kPlanes[plane]] =
          Take(layer, fmt::format("{}.{}", Path(layer, is_value), plane), plane == 0 ? "W" : "G",
               state.tokens);
    }
    const Tensor& codes = tensors->at(name + "_codes");
    const Tensor& scales = tensors->at(name + "_scales");
    const AffineFormat affine{
        static_cast<int>(is_value ? state.bits.back() : state.bits.front()),
        static_cast<int>(is_value ? state.groups.back() : state.groups.front()), scales.dtype};
    const int64_t dim = scales.shape.RowLength() * affine.group_size;
    if (!affine.Exists() || codes.dtype != DType::kUInt32 ||
        codes.shape.RowLength() * kWordBits != dim * affine.bits || !SamePlanes(*tensors, name)) {
      Unreadable(layer, fmt::format("codes, scales and biases of {} are not those of {} bits in "
                                    "groups of {}",
                                    name, affine.bits, affine.group_size));
    }
    return affine;
  }

  bool SamePlanes(const TensorMap& tensors, const std::string& name) const {
    const Tensor& scales = tensors.at(name + "_scales");
    const Tensor& biases = tensors.at(name + "_biases");
    const Tensor& codes = tensors.at(name + "_codes");
    return scales.dtype == biases.dtype && scales.shape == biases.shape &&
           scales.shape.RowCount() == codes.shape.RowCount();
  }

  void SetExtents(int64_t number, const Shape& shape, bool is_value,
                  PromptCacheLayer* layer) const {
    const std::array<int64_t, 3> extents = {shape.axes[0].extent, shape.axes[1].extent,
                                            shape.axes[2].extent};
    if (is_value && extents != std::array{layer->batch, layer->kv_heads, layer->tokens}) {
      Unreadable(number, "keys and values are of different batches, heads or tokens");
    }
    layer->batch = extents[0];
    layer->kv_heads = extents[1];
    layer->tokens = extents[2];
  }

  // Of the state of a layer, in its order.
  std::vector<int64_t> Numbers(int64_t layer) {
    std::vector<int64_t> numbers;
    if (!IsOlder(index_)) {
      for (int64_t i = 2;; ++i) {
        const std::string path = fmt::format("/{}.{}", layer, i);
        if (index_.objects.count(path) == 0) return numbers;
        const Tensor tensor = ReadTensor(*source_, path);
        if (tensor.dtype != DType::kInt32 || tensor.ElementCount() != 1) {
          Unreadable(layer, path.substr(1) + " is no number");
        }
        numbers.push_back(*tensor.As<int32_t>());
      }
    }
    for (int64_t i = 0;; ++i) {
      const std::string* text = Metadata(index_, fmt::format("0.{}.{}", layer, i));
      if (text == nullptr) return numbers;
      int64_t number = 0;
      const char* const end = text->data() + text->size();
      const auto [stopped, error] = std::from_chars(text->data(), end, number);
      if (error != std::errc() || stopped != end) {
        Unreadable(layer, fmt::format("'{}' of its state is no number", *text));
      }
      numbers.push_back(number);
    }
  }

  // Of slots that have been made for more tokens, those that have one.
  Tensor Take(int64_t layer, const std::string& path, const std::string& last_axis,
              std::optional<int64_t> tokens) {
    if (index_.objects.count(path) == 0) Unreadable(layer, path.substr(1) + " is missing");
    const Tensor stored = ReadTensor(*source_, path);
    const std::vector<Axis>& axes = stored.shape.axes;
    if (axes.size() != 4) Unreadable(layer, path.substr(1) + " has not four axes");
    const int64_t slots = axes[2].extent;
    const int64_t count = tokens.value_or(slots);
    if (count < 1 || count > slots || stored.ElementCount() == 0) {
      Unreadable(layer,
                 fmt::format("{} has {} slots, for {} tokens", path.substr(1), slots, count));
    }
    Tensor taken(stored.dtype, Shape{{"B", axes[0].extent},
                                     {"Hkv", axes[1].extent},
                                     {"T", count},
                                     {last_axis, axes[3].extent}});
    const size_t row_bytes = static_cast<size_t>(axes[3].extent) * SizeInBytes(stored.dtype);
    const size_t from = static_cast<size_t>(slots) * row_bytes;
    const size_t to = static_cast<size_t>(count) * row_bytes;
    const auto heads = static_cast<size_t>(axes[0].extent * axes[1].extent);
    for (size_t head = 0; head < heads; ++head) {
      std::memcpy(taken.bytes.data() + head * to, stored.bytes.data() + head * from, to);
    }
    return taken;
  }

  TensorSource* const source_;
  const FileIndex& index_;
};

}  // namespace

bool IsPromptCache(const FileIndex& index) {
  const std::string* first = Metadata(index, ClassKey(index, 0));
  // "KVCache", "RotatingKVCache", "ArraysCache", ...
  return first != nullptr && first->ends_with("Cache");
}

PromptCache ReadPromptCache(TensorSource* source) { return Reader(source).Read(); }

}  // namespace kvcheck
