// Causes by which codes of K or V meet scales (and biases, zero points, norms) of another place: of
// another group, token, head or batch row, or along another axis of memory.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/attention/causes.h"
#include "reference/formats/codec.h"

namespace kvcheck {
namespace {

// Which number beside the codes is taken from another place.
struct ScalePlace {
  int64_t batch = 0, head = 0, token = 0, group = 0;
};

struct OtherScales {
  std::string text;  // "the next token"
  std::function<ScalePlace(ScalePlace, int64_t groups)> of;
};

class Scales {
 public:
  explicit Scales(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    const AttentionCase& c = causes_.c();
    if (c.against_original) return;
    const std::vector<std::string> of_k = NumbersOf(true), of_v = NumbersOf(false);
    if (of_k.empty() && of_v.empty()) return;
    for (const OtherScales& other : Others()) {
      Try(of_k, {}, other);
      Try({}, of_v, other);
      if (!of_k.empty() && !of_v.empty()) Try(of_k, of_v, other);
      // Of planes that stand apart, one may be read from elsewhere and the others not.
      for (const std::string& plane : of_k) {
        if (of_k.size() > 1) Try({plane}, {}, other);
      }
      for (const std::string& plane : of_v) {
        if (of_v.size() > 1) Try({}, {plane}, other);
      }
    }
  }

 private:
  static constexpr std::string_view kNumbers[] = {"scales", "biases", "zeros", "norms"};

  // Planes that every row has beside its codes.
  std::vector<std::string> NumbersOf(bool is_key) const {
    const AttentionCase& c = causes_.c();
    const KvFormat& format = is_key ? c.k : c.v;
    std::vector<std::string> names;
    if (IsPlain(format) || IsOfCachesAlone(format)) return names;
    for (const Plane& plane : PlanesOf(format, is_key ? c.k_dim : c.v_dim)) {
      const bool is_number =
          std::find(std::begin(kNumbers), std::end(kNumbers), plane.name) != std::end(kNumbers);
      if (is_number && plane.scope == PlaneScope::kRow) names.emplace_back(plane.name);
    }
    return names;
  }

  std::vector<OtherScales> Others() const {
    const int64_t tokens = problem_.kv_len;
    const int64_t heads = causes_.c().kv_heads, batches = causes_.c().batch;
    std::vector<OtherScales> others;
    const auto add = [&](std::string text, const auto& of) {
      others.push_back({std::move(text), of});
    };
    for (const int64_t by : {1, -1}) {
      const std::string word = by == 1 ? "the next " : "the previous ";
      add(word + "token", [=](ScalePlace at, int64_t) {
        at.token = std::clamp<int64_t>(at.token + by, 0, tokens - 1);
        return at;
      });
      add(word + "group", [=](ScalePlace at, int64_t groups) {
        at.group = (at.group + by + groups) % groups;
        return at;
      });
      add(word + "group, of the next token at the end of a row",
          [=](ScalePlace at, int64_t groups) {
            const int64_t flat =
                std::clamp<int64_t>(at.token * groups + at.group + by, 0, tokens * groups - 1);
            at.token = flat / groups, at.group = flat % groups;
            return at;
          });
      if (heads > 1) {
        add(word + "key/value head", [=](ScalePlace at, int64_t) {
          at.head = (at.head + by + heads) % heads;
          return at;
        });
      }
      if (batches > 1) {
        add(word + "batch row", [=](ScalePlace at, int64_t) {
          at.batch = (at.batch + by + batches) % batches;
          return at;
        });
      }
    }
    add("group 0 of their token", [](ScalePlace at, int64_t) {
      at.group = 0;
      return at;
    });
    add("token 0", [](ScalePlace at, int64_t) {
      at.token = 0;
      return at;
    });
    add("another place: groups and tokens are exchanged", [=](ScalePlace at, int64_t groups) {
      const int64_t flat = at.group * tokens + at.token;
      at.token = flat / groups, at.group = flat % groups;
      return at;
    });
    if (heads > 1) {
      add("key/value head 0", [](ScalePlace at, int64_t) {
        at.head = 0;
        return at;
      });
      add("another place: heads and tokens are exchanged", [=](ScalePlace at, int64_t) {
        const int64_t flat = at.token * heads + at.head;
        at.head = flat / tokens, at.token = flat % tokens;
        return at;
      });
    }
    return others;
  }

  // K or V of one head with these planes read from elsewhere, decoded.
  std::vector<double> Operand(bool is_key, int64_t batch, int64_t head,
                              const std::vector<std::string>& planes,
                              const OtherScales& other) const {
    const AttentionCase& c = causes_.c();
    const KvFormat& format = is_key ? c.k : c.v;
    const std::string name = is_key ? "k" : "v";
    const int64_t tokens = problem_.kv_len;
    TensorMap own;
    for (const Plane& plane : PlanesOf(format, is_key ? c.k_dim : c.v_dim)) {
      const std::string key = PlaneTensor(format, name, plane);
      const Tensor& all = Get(problem_.asked.inputs, key);
      if (plane.scope == PlaneScope::kTensor) {
        own[key] = all;
        continue;
      }
      const int64_t width = all.shape.RowLength();
      Tensor rows(all.dtype, Shape::Unnamed({tokens, width}));
      const size_t size = rows.bytes.size() / static_cast<size_t>(tokens * width);
      const auto first = static_cast<size_t>((batch * c.kv_heads + head) * tokens * width) * size;
      const bool is_other = std::find(planes.begin(), planes.end(), plane.name) != planes.end();
      if (!is_other) {
        std::memcpy(rows.bytes.data(), &all.bytes[first], rows.bytes.size());
      } else {
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t g = 0; g < width; ++g) {
            const ScalePlace at = other.of({batch, head, t, g}, width);
            const int64_t from =
                ((at.batch * c.kv_heads + at.head) * tokens + at.token) * width + at.group;
            std::memcpy(&rows.bytes[static_cast<size_t>(t * width + g) * size],
                        &all.bytes[static_cast<size_t>(from) * size], size);
          }
        }
      }
      own[key] = std::move(rows);
    }
    const KvFormat of_head = FormatOfHead(format, head);
    return DecodeRows(of_head, problem_.asked.profile, CacheRows(of_head, own, name), 0, tokens).hi;
  }

  void Try(const std::vector<std::string>& of_k, const std::vector<std::string>& of_v,
           const OtherScales& other) {
    if (of_k.empty() && of_v.empty()) return;
    struct Operands {
      std::vector<double> k, v;
    };
    std::map<std::pair<int64_t, int64_t>, Operands> heads;
    const auto predict = [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
      const auto [found, is_new] = heads.try_emplace({row.query.batch, row.kv_head});
      Operands& operands = found->second;
      if (is_new && !of_k.empty()) {
        operands.k = Operand(true, row.query.batch, row.kv_head, of_k, other);
      }
      if (is_new && !of_v.empty()) {
        operands.v = Operand(false, row.query.batch, row.kv_head, of_v, other);
      }
      Rescored change;
      if (!of_k.empty()) change.k = &operands.k;
      if (!of_v.empty()) change.v = &operands.v;
      return Rescore(problem_, row, change);
    };
    // Each takes a head decoded: one row refutes most.
    if (!(causes_.Explains({problem_.screen[0]}, predict) > 0.5)) return;
    const std::string numbers = fmt::format("{}", fmt::join(of_k.empty() ? of_v : of_k, " and "));
    const std::string of = of_v.empty() ? "K" : of_k.empty() ? "V" : "K and V";
    causes_.AddIfLikely({"scales of another place",
                         fmt::format("{} of {} are those of {}", numbers, of, other.text),
                         other.text.find(',') == std::string::npos ? 0 : 1, 0, 64},
                        predict);
  }

  Causes& causes_;
  const SeenProblem& problem_;
};

}  // namespace

void AddCausesOfScales(Causes* causes) { Scales(causes).Run(); }

}  // namespace kvcheck
