// Which faults are named, and how: faults of drawn kinds, sizes and places in simulated kernels,
// each judged as `kvcheck run` does, and the cause that the verdict names held against the
// fault. Controls (faults that have no name) must stay unnamed. Exit code 1: more than 2 % of the
// faults that fail are named wrongly, or fewer than 90 % rightly, or a control has a name.
//
//   fault_names [--faults 300] [--seed 1] [--lengths 64,256,1024,4096,16384] [--type bf16]
//               [--kind PART_OF_A_NAME] [--shape "hq=8 hkv=2 d=64"] [--queries N]
//               [--data gauss] [--verbose]

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <numbers>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "reference/attention/attention_source.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/generate_inputs.h"
#include "reference/judge/judge.h"
#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

// An online softmax in blocks of 64 keys with f32 accumulators, as fused kernels compute it.
Plan KernelPlan(DType dtype, int splits) {
  return ParsePlan(fmt::format(
      "qk=f32:lanes:8:fma pv=f32:sequential:fma:chained l=f32:lanes:8 op=f32 scale_roundings=1 "
      "prescale=none scores=f32 bias_roundings=0 exp=exp exp_error=2^-23 exp_floor=2^-126 "
      "lazy_rescale=0 block=64 sink=first p={} p_scale=1 p_normalised=no l_from=unrounded "
      "merge={} splits={} {} normalise=divide flush=no saturate=no tanh_error=2^-22 "
      "log_error=2^-22",
      ShortName(dtype), splits > 1 ? "lse" : "none", splits, splits > 1 ? "partial=f32" : ""));
}

struct Question {
  AttentionCase c;
  TensorMap inputs;
  AttentionRules rules;
  int splits = 1;
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {  // both included
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  // By its logarithm.
  int64_t Size(int64_t low, int64_t high) {
    const double x = std::uniform_real_distribution<double>(
        std::log(static_cast<double>(low)), std::log(static_cast<double>(high) + 1))(engine_);
    return std::clamp(static_cast<int64_t>(std::exp(x)), low, high);
  }
  double Real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine_);
  }
  bool Coin() { return Between(0, 1) == 1; }

 private:
  std::mt19937_64 engine_;
};

// Whether the text of a verdict's cause says what was done.
using Says = std::function<bool(const std::string& cause, const std::string& text)>;

Says Words(std::vector<std::string> any) {
  return [any = std::move(any)](const std::string& cause, const std::string& text) {
    return std::any_of(any.begin(), any.end(), [&](const std::string& words) {
      return (cause + ": " + text).find(words) != std::string::npos;
    });
  };
}

// "keys 10 to 20", or "key 10": with these numbers, or as near as the text itself claims.
Says Keys(std::string words, int64_t from, int64_t to, std::vector<std::string> instead = {}) {
  // A single key may stand in a list of one.
  if (words == "left out" && to == from + 1) {
    instead.push_back(fmt::format("one key that the mask shows is lost: {} ", from));
    instead.push_back(fmt::format("one key that the mask shows is lost: {}\n", from));
  }
  return [=](const std::string& cause, const std::string& text) {
    if (Words(instead)(cause, text + "\n")) return true;
    if (text.find(words) == std::string::npos) return false;
    std::smatch found;
    if (!std::regex_search(text, found, std::regex("keys? (\\d+)(?: to (\\d+))?"))) return false;
    const int64_t first = std::stoll(found[1]);
    const int64_t last = found[2].matched ? std::stoll(found[2]) : first;
    std::smatch within;
    int64_t off = 0;
    if (std::regex_search(text, within, std::regex("within (\\d+|one)"))) {
      off = within[1] == "one" ? 1 : std::stoll(within[1]);
    }
    return std::abs(first - from) <= off && std::abs(last - (to - 1)) <= off;
  };
}

template <typename Keep>
void KeepKeys(VisibleSet* set, const Keep& copies) {
  VisibleSet kept = *set;
  kept.keys.clear(), kept.bias.clear();
  for (size_t i = 0; i < set->keys.size(); ++i) {
    for (int n = 0; n < copies(set->keys[i]); ++n) {
      kept.keys.push_back(set->keys[i]);
      if (!set->bias.empty()) kept.bias.push_back(set->bias[i]);
    }
  }
  if (!kept.keys.empty()) *set = std::move(kept);
}

// Rows [from, from + count) of every (batch, head) of k and v, overwritten.
template <typename Edit>
void EditRows(Tensor* tensor, int64_t rows_of_head, const Edit& edit) {
  const auto row_bytes =
      static_cast<size_t>(tensor->shape.RowLength()) * SizeInBytes(tensor->dtype);
  const auto heads = static_cast<int64_t>(tensor->bytes.size() / row_bytes) / rows_of_head;
  for (int64_t h = 0; h < heads; ++h) {
    edit(h, tensor->bytes.data() + static_cast<size_t>(h * rows_of_head) * row_bytes, row_bytes);
  }
}

// `count` rows of zeros after those of each head.
void AppendZeros(Tensor* tensor, int64_t rows_of_head, int64_t count) {
  std::vector<std::byte> longer;
  EditRows(tensor, rows_of_head, [&](int64_t, const std::byte* head, size_t row_bytes) {
    longer.insert(longer.end(), head, head + static_cast<size_t>(rows_of_head) * row_bytes);
    longer.resize(longer.size() + static_cast<size_t>(count) * row_bytes, std::byte{0});
  });
  tensor->bytes = std::move(longer);
  tensor->shape.axes[tensor->shape.axes.size() - 2].extent += count;
}

struct Kind {
  std::string name;
  std::string terms;  // added to the text of the case
  bool is_control = false;
  // Makes the wrong question; what must be said of it.
  std::function<Says(Draw*, Question*)> plant;
  std::string format = "";  // of K and V; empty: the type of q
  bool passes = false;      // what is planted is no fault
};

// Fills rows [from, to) of every head with normal numbers, which stand in no tensor of the case.
void FillRows(Draw* draw, Question* q, const char* name, int64_t from, int64_t to) {
  Tensor& tensor = q->inputs.at(name);
  const auto length = static_cast<size_t>(tensor.shape.RowLength());
  std::mt19937_64 engine(static_cast<uint64_t>(draw->Between(0, 1 << 30)));
  std::normal_distribution<double> normal;
  EditRows(&tensor, q->c.kv_len, [&](int64_t, std::byte* rows, size_t size) {
    for (int64_t row = from; row < to; ++row) {
      std::vector<double> values(length);
      for (double& value : values) value = normal(engine);
      EncodeFrom(values, tensor.dtype, rows + static_cast<size_t>(row) * size, ConvertRule());
    }
  });
}

std::pair<int64_t, int64_t> DrawPage(Draw* draw, const AttentionCase& c, int64_t largest) {
  int64_t page = int64_t{16} << draw->Between(0, 3);
  page = std::min(page, largest);
  while (page > 16 && 2 * page >= c.kv_len) page /= 2;
  const int64_t first = draw->Between(0, (c.kv_len - c.query_len) / page - 1) * page;
  return {first, first + page};
}

void ExchangeRows(Question* q, const char* name, int64_t a, int64_t b, int64_t count) {
  EditRows(&q->inputs.at(name), q->c.kv_len, [&](int64_t, std::byte* rows, size_t size) {
    std::swap_ranges(rows + static_cast<size_t>(a) * size,
                     rows + static_cast<size_t>(a + count) * size,
                     rows + static_cast<size_t>(b) * size);
  });
}

void CopyRows(Question* q, const char* name, int64_t from, int64_t to, int64_t count) {
  EditRows(&q->inputs.at(name), q->c.kv_len, [&](int64_t, std::byte* rows, size_t size) {
    std::memmove(rows + static_cast<size_t>(to) * size, rows + static_cast<size_t>(from) * size,
                 static_cast<size_t>(count) * size);
  });
}

// Where the scales of K or V come from.
struct ScaleOf {
  std::string name;                           // in the text of the cause
  int64_t groups = 0, tokens = 0, heads = 0;  // further
};

void OnKeys(Question* q, std::function<int(const QueryIndex&, int32_t)> copies) {
  q->rules.visible = [copies](const AttentionCase&, const QueryIndex& index, VisibleSet* set) {
    KeepKeys(set, [&](int32_t key) { return copies(index, key); });
  };
}

std::pair<int64_t, int64_t> DrawRange(Draw* draw, const AttentionCase& c) {
  const int64_t free = c.kv_len - c.query_len;
  const int64_t size = draw->Size(1, std::max<int64_t>(1, free / 4));
  const int64_t from = draw->Between(0, free - size);
  return {from, from + size};
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  const std::string causal = "mask=causal_bottom_right";
  kinds.push_back(
      {"range lost", causal, false, [](Draw* draw, Question* q) {
         const auto [from, to] = DrawRange(draw, q->c);
         OnKeys(q, [=](const QueryIndex&, int32_t key) { return key >= from && key < to ? 0 : 1; });
         return Keys("left out", from, to,
                     {from == 0 ? fmt::format("the first {}", to) : "no such"});
       }});
  kinds.push_back(
      {"range twice", causal, false, [](Draw* draw, Question* q) {
         const auto [from, to] = DrawRange(draw, q->c);
         OnKeys(q, [=](const QueryIndex&, int32_t key) { return key >= from && key < to ? 2 : 1; });
         return Keys("counted twice", from, to);
       }});
  kinds.push_back({"range lost in some heads", causal, false, [](Draw* draw, Question* q) {
                     const auto [from, to] = DrawRange(draw, q->c);
                     const int64_t a = draw->Between(0, 3), b = draw->Between(4, 7);
                     OnKeys(q, [=](const QueryIndex& index, int32_t key) {
                       const bool is_there = index.query_head == a || index.query_head == b;
                       return is_there && key >= from && key < to ? 0 : 1;
                     });
                     const Says keys = Keys("left out", from, to);
                     return [=](const std::string& cause, const std::string& text) {
                       const std::string word = b == a + 1 ? " to " : ", ";
                       return keys(cause, text) && text.find(fmt::format("heads {}{}{}", a, word,
                                                                         b)) != std::string::npos;
                     };
                   }});
  kinds.push_back({"last page lost", "", false, [](Draw* draw, Question* q) {
                     const int64_t page = int64_t{16} << draw->Between(0, q->c.kv_len > 64 ? 2 : 1);
                     const int64_t from = (q->c.kv_len - 1) / page * page;
                     OnKeys(q, [=](const QueryIndex&, int32_t key) { return key >= from ? 0 : 1; });
                     return Keys("left out", from, q->c.kv_len,
                                 {fmt::format("the last {} ", q->c.kv_len - from)});
                   }});
  kinds.push_back(
      {"page replaced", "", false, [](Draw* draw, Question* q) {
         const int64_t most = q->c.kv_len >= 1024 ? 4 : 1;
         const int64_t page = int64_t{16} << draw->Between(0, most);
         const int64_t pages = q->c.kv_len / page;
         const int64_t lost = draw->Between(0, pages - 1);
         const int64_t read = (lost + draw->Between(1, pages - 1)) % pages;
         const auto row = [=](std::span<const int32_t> keys, size_t i) {
           const int64_t key = keys[i];
           return static_cast<int32_t>(key / page == lost ? key + (read - lost) * page : key);
         };
         q->rules.k_row = q->rules.v_row = row;
         return Words({fmt::format("keys {} to {}) is read from page {} of the same", lost * page,
                                   lost * page + page - 1, read),
                       // All that is left counts twice.
                       pages == 2 ? fmt::format("keys {} to {} (page {} of 2 pages of "
                                                "{}) are left out",
                                                lost * page, lost * page + page - 1, lost, page)
                                  : "no such"});
       }});
  kinds.push_back({"page of another batch row", "b=2", false, [](Draw* draw, Question* q) {
                     const int64_t page = int64_t{16} << draw->Between(0, 1);
                     const int64_t pages = q->c.kv_len / page;
                     const int64_t lost = draw->Between(0, pages - 1);
                     const int64_t read = draw->Between(0, pages - 1);
                     for (const char* name : {"k", "v"}) {
                       const std::vector<std::byte> old = q->inputs.at(name).bytes;
                       EditRows(&q->inputs.at(name), q->c.kv_len,
                                [&](int64_t head, std::byte* rows, size_t size) {
                                  if (head >= q->c.kv_heads) return;
                                  const int64_t other =
                                      (head + q->c.kv_heads) * q->c.kv_len + read * page;
                                  std::memcpy(rows + static_cast<size_t>(lost * page) * size,
                                              &old[static_cast<size_t>(other) * size],
                                              static_cast<size_t>(page) * size);
                                });
                     }
                     return Words({fmt::format("keys {} to {}) is read from page {} of batch row 1",
                                               lost * page, lost * page + page - 1, read)});
                   }});
  kinds.push_back(
      {"window off", "mask=causal_bottom_right+window:W", false, [](Draw* draw, Question* q) {
         const int64_t w = *q->c.mask.window;
         const int64_t most = std::min(w - 1, q->c.kv_len - q->c.query_len - w);
         const int64_t by = draw->Size(1, std::max<int64_t>(1, most / 2)) * (draw->Coin() ? 1 : -1);
         q->c.mask.window = w + by;
         return Words({fmt::format("{} in place of {}", w + by, w),
                       by == 1 ? "one older key visible:" : "no such",
                       by == -1 ? "first key missing:" : "no such"});
       }});
  kinds.push_back(
      {"window ignored", "mask=causal_bottom_right+window:W", false, [](Draw*, Question* q) {
         q->c.mask.window.reset();
         return Words({"window ignored"});
       }});
  kinds.push_back({"last keys lost", causal, false, [](Draw* draw, Question* q) {
                     const int64_t n = draw->Size(1, 32);
                     q->rules.visible = [n](const AttentionCase&, const QueryIndex&,
                                            VisibleSet* set) {
                       const int32_t last = set->keys.back();
                       KeepKeys(set, [&](int32_t key) { return key > last - n ? 0 : 1; });
                     };
                     return Words({n == 1 ? "last key missing:" : fmt::format("the last {} ", n)});
                   }});
  kinds.push_back({"future keys visible", causal, false, [](Draw* draw, Question* q) {
                     const int64_t n = draw->Between(1, 2);
                     q->rules.visible = [n](const AttentionCase& c, const QueryIndex&,
                                            VisibleSet* set) {
                       for (int64_t i = 0; i < n && set->keys.back() + 1 < c.kv_len; ++i) {
                         set->keys.push_back(set->keys.back() + 1);
                       }
                     };
                     return Words({n == 1 ? "next key visible:" : "the 2 keys after",
                                   n >= q->c.query_len - 1 ? "causal mask ignored:" : "no such"});
                   }});
  kinds.push_back({"tile without its mask", causal, false, [](Draw* draw, Question* q) {
                     const int64_t tile = int64_t{8} << draw->Between(0, 1);
                     q->c.query_len = q->c.query_len;
                     q->rules.visible = [tile](const AttentionCase& c, const QueryIndex&,
                                               VisibleSet* set) {
                       const int64_t end = std::min(c.kv_len, (set->keys.back() / tile + 1) * tile);
                       while (set->keys.back() + 1 < end) set->keys.push_back(set->keys.back() + 1);
                     };
                     return Words({"tile without its mask:", "causal mask ignored:"});
                   }});
  kinds.push_back({"causal alignment", "mask=causal_top_left", false, [](Draw*, Question* q) {
                     q->c.mask.causal = CausalAlignment::kBottomRight;
                     return Words({"causal alignment"});
                   }});
  kinds.push_back({"keys of zeros", "", false, [](Draw* draw, Question* q) {
                     const int64_t n = draw->Size(1, std::max<int64_t>(2, q->c.kv_len / 8));
                     for (const char* name : {"k", "v"}) {
                       AppendZeros(&q->inputs.at(name), q->c.kv_len, n);
                     }
                     q->c.kv_len += n;
                     return [n](const std::string& cause, const std::string& text) {
                       if (cause != "keys of zeros") return false;
                       std::smatch found, within;
                       int64_t said = 1, off = 0;
                       if (std::regex_search(text, found, std::regex("^(\\d+) keys"))) {
                         said = std::stoll(found[1]);
                       }
                       if (std::regex_search(text, within, std::regex("within (\\d+)"))) {
                         off = std::stoll(within[1]);
                       }
                       return std::abs(said - n) <= off;
                     };
                   }});
  kinds.push_back({"sinks ignored", "sinks=f32", false, [](Draw*, Question* q) {
                     q->c.sinks.reset();
                     return Words({"sinks ignored"});
                   }});
  kinds.push_back({"sink of another head", "sinks=f32", false, [](Draw* draw, Question* q) {
                     const int64_t by = draw->Between(1, q->c.query_heads - 1);
                     Tensor& sinks = q->inputs.at("sinks");
                     const std::vector<std::byte> old = sinks.bytes;
                     const size_t size = SizeInBytes(sinks.dtype);
                     const auto heads = static_cast<size_t>(q->c.query_heads);
                     for (size_t h = 0; h < heads; ++h) {
                       std::memcpy(&sinks.bytes[h * size],
                                   &old[(h + static_cast<size_t>(by)) % heads * size], size);
                     }
                     return Words({by == 1 ? "sink of the next head"
                                   : by == q->c.query_heads - 1
                                       ? "sink of the previous head"
                                       : fmt::format("sink of the head {} further", by)});
                   }});
  kinds.push_back({"scale", causal, false, [](Draw* draw, Question* q) {
                     const double factor =
                         std::exp(draw->Real(0.005, 0.7) * (draw->Coin() ? 1 : -1));
                     q->c.scale *= factor;
                     return [factor](const std::string& cause, const std::string& text) {
                       std::smatch found;
                       if (cause != "scale" ||
                           !std::regex_search(text, found, std::regex("multiplied by ([0-9.]+)"))) {
                         return false;
                       }
                       return std::fabs(std::stod(found[1]) / factor - 1) < 0.005;
                     };
                   }});
  kinds.push_back({"scale of a constant", causal, false, [](Draw* draw, Question* q) {
                     const std::vector<std::pair<double, std::string>> known = {
                         {std::numbers::sqrt2, "by sqrt(2)"},
                         {std::numbers::log2e, "by log2(e)"},
                         {std::numbers::ln2, "by ln(2)"},
                         {1 / q->c.scale, "not scaled"},
                         {0.5, "by 1 / 2"}};
                     const auto& [factor, text] =
                         known[static_cast<size_t>(draw->Between(0, std::ssize(known) - 1))];
                     q->c.scale *= factor;
                     return Words({text});
                   }});
  kinds.push_back({"key/value head", causal, false, [](Draw* draw, Question* q) {
                     const bool is_tiled = draw->Coin();
                     q->rules.head_map = [is_tiled](const AttentionCase& c, int64_t head) {
                       return is_tiled ? head % c.kv_heads
                                       : (head / (c.query_heads / c.kv_heads) + 1) % c.kv_heads;
                     };
                     return Words({"other key/value head:"});
                   }});
  kinds.push_back({"mask of another query", "mask=bool:LT", false, [](Draw*, Question* q) {
                     q->rules.mask_query = [](const AttentionCase& c, const QueryIndex& index) {
                       QueryIndex other = index;
                       other.query = (index.query + 1) % c.query_len;
                       return other;
                     };
                     return Words({"mask is that of the next query"});
                   }});
  kinds.push_back(
      {"mask of another batch row", "b=2 mask=bool:B1LT", false, [](Draw*, Question* q) {
         q->rules.mask_query = [](const AttentionCase& c, const QueryIndex& index) {
           QueryIndex other = index;
           other.batch = (index.batch * c.query_heads + index.query_head) % c.batch;
           return other;
         };
         return Words({"mask of another batch row:"});
       }});
  kinds.push_back(
      {"mask only in some columns", "mask=bool:LT", false, [](Draw* draw, Question* q) {
         const int64_t at = draw->Between(q->c.kv_len / 8, q->c.kv_len * 7 / 8);
         const bool below = draw->Coin();
         q->rules.visible = [=](const AttentionCase& c, const QueryIndex&, VisibleSet* set) {
           std::vector<int32_t> keys;
           size_t next = 0;
           for (int32_t key = 0; key < c.kv_len; ++key) {
             const bool seen = next < set->keys.size() && set->keys[next] == key;
             next += seen ? 1 : 0;
             if (seen || (below ? key < at : key >= at)) keys.push_back(key);
           }
           set->keys = keys;
         };
         return [=](const std::string& cause, const std::string& text) {
           std::smatch found;
           if (cause != "mask ignored in columns" ||
               !std::regex_search(text, found,
                                  std::regex(below ? "below (\\d+)" : "from (\\d+) on"))) {
             return false;
           }
           // Between two hidden columns every boundary is the same.
           return std::abs(std::stoll(found[1]) - at) <= 24;
         };
       }});
  kinds.push_back({"V read from K", causal, false, [](Draw*, Question* q) {
                     q->inputs.at("v").bytes = q->inputs.at("k").bytes;
                     return Words({"V read from K:"});
                   }});
  kinds.push_back(
      {"merge in a wrong base", causal, false, [](Draw* draw, Question* q) {
         q->splits = static_cast<int>(draw->Between(2, 8));
         const bool is_base2 = draw->Coin();
         const double power = is_base2 ? std::numbers::log2e : std::numbers::ln2;
         q->rules.merge_weight = [power](size_t, size_t, double weight) {
           return std::pow(weight, power);
         };
         const int64_t range = (q->c.kv_len + q->splits - 1) / q->splits;
         const std::string base = is_base2 ? "are in base 2, and" : "are natural, and";
         return [=](const std::string& cause, const std::string& text) {
           return cause == "merge in a wrong base" && text.find(base) != std::string::npos &&
                  (text.find(fmt::format("ranges of {} keys", range)) != std::string::npos ||
                   text.find(fmt::format("below {} ", range)) != std::string::npos);
         };
       }});
  kinds.push_back({"V row stale", causal, false, [](Draw* draw, Question* q) {
                     const int64_t row = draw->Between(0, q->c.kv_len - q->c.query_len - 1);
                     const int64_t from = (row + q->c.kv_len / 2) % (q->c.kv_len - 1);
                     EditRows(&q->inputs.at("v"), q->c.kv_len,
                              [&](int64_t, std::byte* rows, size_t size) {
                                std::memcpy(rows + static_cast<size_t>(row) * size,
                                            rows + static_cast<size_t>(from) * size, size);
                              });
                     return Words({fmt::format("V of key {} is not", row)});
                   }});
  kinds.push_back({"K row stale", causal, false, [](Draw* draw, Question* q) {
                     const int64_t row = draw->Between(0, q->c.kv_len - q->c.query_len - 1);
                     const int64_t from = (row + q->c.kv_len / 2) % (q->c.kv_len - 1);
                     EditRows(&q->inputs.at("k"), q->c.kv_len,
                              [&](int64_t, std::byte* rows, size_t size) {
                                std::memcpy(rows + static_cast<size_t>(row) * size,
                                            rows + static_cast<size_t>(from) * size, size);
                              });
                     return Words({fmt::format("the scores of key {} are", row)});
                   }});
  kinds.push_back(
      {"control: a tenth of the keys lost", causal, true, [](Draw* draw, Question* q) {
         std::vector<int> kept(static_cast<size_t>(q->c.kv_len));
         for (int& keep : kept) keep = draw->Between(0, 9) == 0 ? 0 : 1;
         OnKeys(q,
                [kept](const QueryIndex&, int32_t key) { return kept[static_cast<size_t>(key)]; });
         // A list of the lost keys would be no wrong name.
         return [kept](const std::string&, const std::string& text) {
           if (text.find("that the mask shows are lost: ") == std::string::npos) {
             return false;
           }
           const std::regex key(text.find("query") == std::string::npos ? "[:,] (\\d+)"
                                                                        : "key (\\d+)");
           for (std::sregex_iterator it(text.begin(), text.end(), key), end; it != end; ++it) {
             if (kept[static_cast<size_t>(std::stoll((*it)[1]))] != 0) return false;
           }
           return true;
         };
       }});
  kinds.push_back(
      {"control: rows of K exchanged at random", causal, true, [](Draw* draw, Question* q) {
         for (int i = 0; i < 8; ++i) {
           const int64_t a = draw->Between(0, q->c.kv_len - 1);
           const int64_t b = draw->Between(0, q->c.kv_len - 1);
           EditRows(&q->inputs.at("k"), q->c.kv_len, [&](int64_t, std::byte* rows, size_t size) {
             std::swap_ranges(rows + static_cast<size_t>(a) * size,
                              rows + static_cast<size_t>(a + 1) * size,
                              rows + static_cast<size_t>(b) * size);
           });
         }
         return Words({});
       }});
  kinds.push_back({"control: garbage", causal, true, [](Draw* draw, Question* q) {
                     const auto seed = static_cast<uint64_t>(draw->Between(0, 1 << 30));
                     const double size = draw->Real(0.01, 1);
                     q->rules.output = [=](const AttentionCase&, const QueryIndex& index,
                                           std::span<double> out) {
                       Draw of(seed + static_cast<uint64_t>(index.query_head * 1000 + index.query));
                       for (double& value : out) value *= 1 + size * of.Real(-1, 1);
                     };
                     return Words({});
                   }});
  for (const bool is_v : {true, false}) {
    const std::string of = is_v ? "V" : "K";
    const auto says = [is_v](int64_t from, int64_t to) {
      // Few rows do not tell whether K is another one too.
      const Says less = Keys("V, or of K and V,", from, to);
      const Says more =
          Keys(is_v ? "is not what the case holds" : "are not those of the case", from, to);
      return Says([=](const std::string& cause, const std::string& text) {
        return more(cause, text) || (is_v && less(cause, text));
      });
    };
    kinds.push_back({of + " page stale", causal, false, [=](Draw* draw, Question* q) {
                       const auto [from, to] = DrawPage(draw, q->c, is_v ? 128 : 32);
                       FillRows(draw, q, is_v ? "v" : "k", from, to);
                       return says(from, to);
                     }});
    kinds.push_back({of + " range stale", causal, false, [=](Draw* draw, Question* q) {
                       const int64_t most = (q->c.kv_len - q->c.query_len) / 4;
                       const int64_t size =
                           draw->Size(4, is_v ? most : std::min<int64_t>(most, 32));
                       const int64_t from = draw->Between(0, q->c.kv_len - q->c.query_len - size);
                       FillRows(draw, q, is_v ? "v" : "k", from, from + size);
                       return says(from, from + size);
                     }});
    kinds.push_back({of + " pages exchanged", causal, false, [=](Draw* draw, Question* q) {
                       const auto [from, to] = DrawPage(draw, q->c, 64);
                       const int64_t page = to - from,
                                     pages = (q->c.kv_len - q->c.query_len) / page;
                       if (pages < 2) return Words({});
                       const int64_t other = (from / page + draw->Between(1, pages - 1)) % pages;
                       ExchangeRows(q, is_v ? "v" : "k", from, other * page, page);
                       return Words({fmt::format(
                           "K or V (not both) of pages {} and {} (pages of {})",
                           std::min(from / page, other), std::max(from / page, other), page)});
                     }});
    kinds.push_back({of + " page read from another", causal, false, [=](Draw* draw, Question* q) {
                       const auto [from, to] = DrawPage(draw, q->c, 64);
                       const int64_t page = to - from;
                       const int64_t pages = (q->c.kv_len - q->c.query_len) / page;
                       if (pages < 2) return Words({});
                       const int64_t other = (from / page + draw->Between(1, pages - 1)) % pages;
                       CopyRows(q, is_v ? "v" : "k", other * page, from, page);
                       return Words(
                           {fmt::format("{} of page {} (pages of {}: keys {} to {}) is read "
                                        "from page {}",
                                        of, from / page, page, from, to - 1, other)});
                     }});
  }
  kinds.push_back({"K and V page stale", causal, false, [](Draw* draw, Question* q) {
                     const auto [from, to] = DrawPage(draw, q->c, 128);
                     for (const char* name : {"k", "v"}) FillRows(draw, q, name, from, to);
                     return Keys("not read", from, to);
                   }});
  kinds.push_back({"K and V page never written", causal, false, [](Draw* draw, Question* q) {
                     const auto [from, to] = DrawPage(draw, q->c, 128);
                     for (const char* name : {"k", "v"}) {
                       EditRows(&q->inputs.at(name), q->c.kv_len,
                                [&](int64_t, std::byte* rows, size_t size) {
                                  std::memset(rows + static_cast<size_t>(from) * size, 0,
                                              static_cast<size_t>(to - from) * size);
                                });
                     }
                     return Keys("read as zeros (never", from, to);
                   }});
  kinds.push_back({"pages exchanged under a window", "mask=causal_bottom_right+window:W", false,
                   [](Draw* draw, Question* q) {
                     const int64_t first_visible = q->c.kv_len - *q->c.mask.window;
                     const int64_t page = int64_t{16} << draw->Between(0, 1);
                     const int64_t hidden =
                         draw->Between(0, std::max<int64_t>(0, first_visible / page - 1));
                     const int64_t pages = (q->c.kv_len - q->c.query_len) / page;
                     const int64_t low = std::min(pages - 1, (first_visible + page - 1) / page);
                     const int64_t seen = draw->Between(low, pages - 1);
                     if (seen == hidden) return Words({});
                     for (const char* name : {"k", "v"})
                       ExchangeRows(q, name, hidden * page, seen * page, page);
                     return Words({fmt::format("pages {} and {} (pages of {})", hidden, seen, page),
                                   fmt::format("keys {} to {}) is read from page {} of the same",
                                               seen * page, seen * page + page - 1, hidden)});
                   }});
  kinds.push_back(
      {"lengths of two sequences off", "b=2 " + causal, false, [](Draw* draw, Question* q) {
         const int64_t a = draw->Size(1, 8), b = a + draw->Size(1, 8);
         q->rules.visible = [=](const AttentionCase&, const QueryIndex& index, VisibleSet* set) {
           const int32_t last = set->keys.back();
           const int64_t lost = index.batch == 0 ? a : b;
           KeepKeys(set, [&](int32_t key) { return key > last - lost ? 0 : 1; });
         };
         return [=](const std::string&, const std::string& text) {
           const auto said = [&](int64_t row, int64_t n) {
             const std::string lost =
                 n == 1 ? "the last visible key is left out" : fmt::format("the last {} keys", n);
             return text.find(fmt::format("in batch row {} {}", row, lost)) != std::string::npos;
           };
           return said(0, a) && said(1, b);
         };
       }});
  kinds.push_back(
      {"length of one sequence off", "b=2 " + causal, false, [](Draw* draw, Question* q) {
         const int64_t n = draw->Size(2, 16), of = draw->Between(0, 1);
         q->rules.visible = [=](const AttentionCase&, const QueryIndex& index, VisibleSet* set) {
           const int32_t last = set->keys.back();
           const int64_t lost = index.batch == of ? n : 0;
           KeepKeys(set, [&](int32_t key) { return key > last - lost ? 0 : 1; });
         };
         return [=](const std::string&, const std::string& text) {
           return text.find(fmt::format("the last {} keys", n)) != std::string::npos &&
                  text.find(fmt::format("in batch row {}", of)) != std::string::npos;
         };
       }});
  kinds.push_back({"window of one sequence off", "b=2 mask=causal_bottom_right+window:W", false,
                   [](Draw* draw, Question* q) {
                     const int64_t n = draw->Size(1, 16), of = draw->Between(0, 1);
                     const int64_t w = *q->c.mask.window;
                     q->rules.visible = [=](const AttentionCase&, const QueryIndex& index,
                                            VisibleSet* set) {
                       if (index.batch != of) return;
                       const int32_t first = set->keys.front();
                       KeepKeys(set, [&](int32_t key) { return key < first + n ? 0 : 1; });
                     };
                     return [=](const std::string& cause, const std::string& text) {
                       return Words({fmt::format("{} in place of {}", w - n, w)})(cause, text) &&
                              text.find(fmt::format("in batch row {}", of)) != std::string::npos;
                     };
                   }});
  for (const bool is_v : {true, false}) {
    const std::string of = is_v ? "V" : "K";
    kinds.push_back(
        {"scales of " + of, causal, false,
         [=](Draw* draw, Question* q) {
           const std::vector<ScaleOf> all = {{"the next token", 0, 1, 0},
                                             {"the previous token", 0, -1, 0},
                                             {"the next group", 1, 0, 0},
                                             {"the previous group", -1, 0, 0},
                                             {"the next key/value head", 0, 0, 1}};
           const ScaleOf& other = all[static_cast<size_t>(draw->Between(0, std::ssize(all) - 1))];
           const bool scales_only = draw->Coin();
           for (const char* plane : {"scales", "biases"}) {
             if (scales_only && std::string(plane) == "biases") continue;
             Tensor& tensor = q->inputs.at((is_v ? "v_" : "k_") + std::string(plane));
             const std::vector<std::byte> old = tensor.bytes;
             const size_t size = SizeInBytes(tensor.dtype);
             const int64_t groups = tensor.shape.RowLength(), tokens = q->c.kv_len;
             const int64_t heads = q->c.kv_heads;
             for (int64_t h = 0; h < heads; ++h) {
               for (int64_t t = 0; t < tokens; ++t) {
                 for (int64_t g = 0; g < groups; ++g) {
                   const int64_t from_t = std::clamp<int64_t>(t + other.tokens, 0, tokens - 1);
                   const int64_t from = (((h + other.heads) % heads) * tokens + from_t) * groups +
                                        (g + other.groups + groups) % groups;
                   std::memcpy(
                       &tensor.bytes[static_cast<size_t>((h * tokens + t) * groups + g) * size],
                       &old[static_cast<size_t>(from) * size], size);
                 }
               }
             }
           }
           std::vector<std::string> words = {fmt::format("{} are those of {}", of, other.name)};
           // Of two, the next one is the previous one.
           if (other.groups != 0) {
             words = {fmt::format("{} are those of the next group", of),
                      fmt::format("{} are those of the previous group", of)};
           }
           return Words(words);
         },
         "affine:4:g32:bf16"});
  }
  kinds.push_back({"control: right kernel", causal, true,
                   [](Draw*, Question*) { return Words({}); }, "", true});
  kinds.push_back({"control: denominator in bf16", causal, true, [](Draw*, Question* q) {
                     q->rules.output = [](const AttentionCase&, const QueryIndex& index,
                                          std::span<double> out) {
                       Draw of(static_cast<uint64_t>(index.query_head * 1000 + index.query));
                       const double factor = 1 + of.Real(-0x1p-8, 0x1p-8);
                       for (double& value : out) value *= factor;
                     };
                     return Words({"heads scaled:", "output scaled:"});
                   }});
  kinds.push_back(
      {"control: corrections of the denominator lost", causal, true, [](Draw*, Question* q) {
         q->rules.denominator_rescale = [](double) { return 1.0; };
         return Words({"heads scaled:", "output scaled:"});
       }});
  kinds.push_back({"control: P of three bits", causal, true, [](Draw*, Question* q) {
                     q->rules.p_step = [](double p) {
                       int exponent = 0;
                       const double fraction = std::frexp(p, &exponent);
                       return std::ldexp(std::round(fraction * 8) / 8, exponent);
                     };
                     return Words({});
                   }});
  kinds.push_back(
      {"control: rows of V exchanged at random", causal, true, [](Draw* draw, Question* q) {
         for (int i = 0; i < 8; ++i) {
           const int64_t a = draw->Between(0, q->c.kv_len - 1);
           const int64_t b = draw->Between(0, q->c.kv_len - 1);
           if (a != b) ExchangeRows(q, "v", a, b, 1);
         }
         return Words({});
       }});
  return kinds;
}

// What is measured here is asked without the readings of the whole case, which cost more than all
// else.
class WithoutReadings : public AttentionSource {
 public:
  using AttentionSource::AttentionSource;
  std::vector<OtherReading> OtherReadings(int) const override { return {}; }
};

struct Count {
  int64_t drawn = 0, failed = 0, right = 0, wrong = 0;
  double judging = 0, explaining = 0;  // processor seconds
};

int Main(int argc, char** argv) {
  int faults = 300;
  uint64_t seed = 1;
  std::vector<int64_t> lengths = {64, 256, 1024, 4096, 16384};
  std::string type = "bf16", only;
  std::string shape = "hq=8 hkv=2 d=64", data = "gauss";
  int64_t queries = 0;
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--verbose") {
      verbose = true;
      continue;
    }
    if (i + 1 == argc) break;
    const std::string value = argv[++i];
    if (option == "--faults") faults = std::atoi(value.c_str());
    if (option == "--seed") seed = static_cast<uint64_t>(std::atoll(value.c_str()));
    if (option == "--type") type = value;
    if (option == "--kind") only = value;
    if (option == "--shape") shape = value;
    if (option == "--queries") queries = std::atoll(value.c_str());
    if (option == "--data") data = value;
    if (option == "--lengths") {
      lengths.clear();
      for (const Piece& piece : Split(WholeLine(value), ',')) {
        lengths.push_back(ParseInt(piece, 32, 1 << 20));
      }
    }
  }
  std::vector<Kind> kinds = Kinds();
  if (!only.empty()) {
    std::erase_if(kinds,
                  [&](const Kind& kind) { return kind.name.find(only) == std::string::npos; });
  }
  if (kinds.empty()) {
    fmt::print(stderr, "no kind has '{}' in its name\n", only);
    return 2;
  }
  std::map<std::string, Count> counts;
  for (int i = 0; i < faults; ++i) {
    const Kind& kind = kinds[static_cast<size_t>(i) % kinds.size()];
    Draw draw(seed * 1000003 + static_cast<uint64_t>(i));
    const int64_t n = lengths[static_cast<size_t>(draw.Between(0, std::ssize(lengths) - 1))];
    std::string terms = kind.terms;
    if (const size_t at = terms.find(":W"); at != std::string::npos) {
      terms.replace(at, 2, fmt::format(":{}", draw.Between(n / 4, n / 2)));
    }
    const std::string& format = kind.format.empty() ? type : kind.format;
    const std::string text =
        fmt::format("attention {} {} l={} t={} q={} k={} v={} out={} {} data={}:{}",
                    terms.starts_with("b=2") ? "b=2" : "", shape,
                    queries > 0 ? queries : (draw.Coin() ? 4 : 3), n, type, format, format, type,
                    terms.starts_with("b=2") ? terms.substr(3) : terms, data, 100 + i);
    const Case any = ParseCase(text);
    Question question = {std::get<AttentionCase>(any), GenerateInputs(any, Profile()), {}, 1};
    const AttentionCase asked = question.c;
    const TensorMap inputs = question.inputs;
    const Says says = kind.plant(&draw, &question);
    const Plan plan = KernelPlan(asked.q, question.splits);
    SimulatedKernel kernel(plan, Profile(), question.rules);
    MemorySink sink;
    kernel.Run(Case(question.c), question.inputs, sink);
    const WithoutReadings source(asked, Profile(), plan, inputs);
    JudgeOptions options;
    options.explain = false;
    Count& count = counts[kind.name];
    const std::clock_t start = std::clock();
    const bool fails = Judge(source, sink, options).outcome == Outcome::kFail;
    const std::clock_t judged = std::clock();
    options.explain = true;
    const Verdict verdict = Judge(source, sink, options);
    const auto seconds = [](std::clock_t ticks) {
      return static_cast<double>(ticks) / CLOCKS_PER_SEC;
    };
    count.judging += seconds(judged - start);
    count.explaining += std::max(0.0, seconds(std::clock() - judged) - seconds(judged - start));
    ++count.drawn;
    if (!fails) continue;
    if (kind.passes && verbose) fmt::print("{} {}: {} fails\n", i, kind.name, text);
    ++count.failed;
    const SeenKeys seen = verdict.outputs[0].seen.value_or(SeenKeys());
    const bool is_named = !seen.cause.empty();
    const bool is_right = is_named && says(seen.cause, seen.text);
    count.right += is_right ? 1 : 0;
    count.wrong += is_named && !is_right ? 1 : 0;
    if (verbose && !is_right && (is_named || !kind.is_control)) {
      fmt::print("{} {}: {}\n  {}: {}; {:.5f} explained\n", i, kind.name, text,
                 is_named ? "WRONG" : "no name", seen.text, seen.explained);
      fmt::print("  N {} Q0 {:.6g} rows {}\n", seen.elements, seen.misfit, seen.rows);
      for (const TriedCause& tried : seen.tried) {
        fmt::print("    {:.5f} Q {:.6g} {}: {}\n", tried.explained, tried.misfit, tried.name,
                   tried.text);
      }
    }
  }
  Count all, controls;
  fmt::print(
      "| fault | drawn | FAIL | named rightly | wrongly | seconds to judge | to explain "
      "|\n|---|---|---|---|---|---|---|\n");
  for (const Kind& kind : kinds) {
    const Count& count = counts[kind.name];
    const auto each = static_cast<double>(std::max<int64_t>(1, count.drawn));
    fmt::print("| {} | {} | {} | {} | {} | {:.2f} | {:.2f} |\n", kind.name, count.drawn,
               count.failed, count.right, count.wrong, count.judging / each,
               count.explaining / each);
    Count& into = kind.is_control ? controls : all;
    into.drawn += count.drawn, into.failed += count.failed;
    into.right += count.right, into.wrong += count.wrong;
  }
  const auto share = [](int64_t part, int64_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  };
  fmt::print(
      "{} faults, {} fail; of these {:.1f} % named rightly, {:.1f} % wrongly; {} controls, {} "
      "named\n",
      all.drawn, all.failed, share(all.right, all.failed), share(all.wrong, all.failed),
      controls.failed, controls.wrong);
  const bool holds =
      10 * all.right >= 9 * all.failed && 50 * all.wrong <= all.failed && controls.wrong == 0;
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace kvcheck

int main(int argc, char** argv) { return kvcheck::Main(argc, argv); }
