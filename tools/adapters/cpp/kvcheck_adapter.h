// One header with which a C++ program becomes an implementation that kvcheck tests: caches of keys
// and values, attention, codecs (Adapter), or caches across requests (PrefixAdapter). kvcheck
// starts the program and speaks to it over standard input and output (the process protocol,
// tools/process/protocol.md). Nothing of kvcheck is linked; C++17 and msgpack-cxx (Debian:
// libmsgpack-cxx-dev) are all that is needed.
//
//   class MyAdapter : public kvcheck_adapter::Adapter { ... };
//   int main() { MyAdapter adapter; return kvcheck_adapter::Serve(adapter); }
//
//   kvcheck fuzz --impl './my_adapter'
//
// What the operations must do is reference/cache/contract.md, and reference/prefix/contract.md of
// caches across requests. Types (f32, bf16, u32, ...), formats,
// layouts, plans and profiles are texts as in reference/README.md, section 3. An adapter with
// everything is example.cc, beside this file; a small one prefix_example.cc.
//
// Errors, of every method that is overridden:
//   throw Refused        an illegal call; nothing has changed. Any other std::exception counts as
//                        this too: a library refuses with exceptions of its own.
//   throw Unsupported    a legal call that the library does not have; nothing has changed. It is
//                        what a method does that is not overridden.
//   throw AdapterError   a bug of the adapter: the case ends as CRASHED. What is no std::exception
//                        counts as this too, and so does whatever Observe and Greet throw.

#ifndef KVCHECK_ADAPTER_H_
#define KVCHECK_ADAPTER_H_

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <msgpack.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

namespace kvcheck_adapter {

using Texts = std::vector<std::string>;
using Numbers = std::vector<int64_t>;
using Bytes = std::vector<std::byte>;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct AdapterError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes of an element of a type; b8: one byte of 0 or 1. Errors: AdapterError, for no type.
inline int64_t SizeOf(const std::string& type) {
  static const std::map<std::string, int64_t> kBytes = {
      {"f64", 8},    {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f8e4m3fn", 1},
      {"f8e5m2", 1}, {"i8", 1},  {"i16", 2}, {"i32", 4},  {"i64", 8},
      {"u8", 1},     {"u16", 2}, {"u32", 4}, {"u64", 8},  {"b8", 1}};
  const auto found = kBytes.find(type);
  if (found == kBytes.end()) throw AdapterError("there is no type '" + type + "'");
  return found->second;
}

// Elements of a type: row-major, contiguous, little endian, aligned for every type.
struct Array {
  Array() = default;
  // Zeros. Errors: AdapterError, for no type and for a negative extent.
  Array(std::string array_type, Numbers array_extents)
      : type(std::move(array_type)), extents(std::move(array_extents)) {
    bytes.resize(static_cast<size_t>(Size()));
  }

  int64_t Count() const {
    int64_t count = 1;
    for (const int64_t extent : extents) count *= extent;
    return count;
  }
  // T has the size of an element: float for f32, uint16_t for f16 and bf16.
  // Errors: AdapterError, for another size.
  template <typename T>
  T* As() {
    return const_cast<T*>(static_cast<const Array*>(this)->As<T>());
  }
  template <typename T>
  const T* As() const {
    if (static_cast<int64_t>(sizeof(T)) == SizeOf(type)) {
      return reinterpret_cast<const T*>(bytes.data());
    }
    throw AdapterError("elements of " + type + " are read as another type");
  }

  std::string type = "f32";
  Numbers extents;
  Bytes bytes;

  // On the wire: [type, extents, bytes]. Errors: AdapterError, where they do not fit each other.
  template <typename Packer>
  void msgpack_pack(Packer& packer) const {
    if (static_cast<int64_t>(bytes.size()) != Size()) {
      throw AdapterError("the bytes of an array do not fit its extents");
    }
    const auto size = static_cast<uint32_t>(bytes.size());
    packer.pack_array(3).pack(type).pack(extents).pack_bin(size).pack_bin_body(
        reinterpret_cast<const char*>(bytes.data()), size);
  }
  void msgpack_unpack(const msgpack::object& value) {
    const auto& entries = value.as<std::vector<msgpack::object>>();
    if (entries.size() != 3 || entries[2].type != msgpack::type::BIN) throw msgpack::type_error();
    type = entries[0].as<std::string>();
    extents = entries[1].as<Numbers>();
    const auto& from = entries[2].via.bin;
    if (static_cast<int64_t>(from.size) != Size()) throw msgpack::type_error();
    const auto* first = reinterpret_cast<const std::byte*>(from.ptr);
    bytes.assign(first, first + from.size);
  }

 private:
  int64_t Size() const {
    int64_t size = SizeOf(type);
    for (const int64_t extent : extents) {
      if (extent < 0 || (extent > 0 && size > kMost / extent)) {
        throw AdapterError("an array has impossible extents");
      }
      size *= extent;
    }
    return size;
  }
  static constexpr int64_t kMost = int64_t{64} << 20;
};

// Elements first to first + count of an axis. Errors: AdapterError, where they are not there.
inline Array Part(const Array& a, size_t axis, int64_t first, int64_t count) {
  if (axis >= a.extents.size() || first < 0 || count < 0 || count > a.extents[axis] - first) {
    throw AdapterError("a part of an array is not there");
  }
  Array part;
  part.type = a.type;
  part.extents = a.extents;
  part.extents[axis] = count;
  int64_t outer = 1, inner = SizeOf(a.type);
  for (size_t i = 0; i < axis; ++i) outer *= a.extents[i];
  for (size_t i = axis + 1; i < a.extents.size(); ++i) inner *= a.extents[i];
  for (int64_t i = 0; i < outer; ++i) {
    const auto from = a.bytes.begin() + (i * a.extents[axis] + first) * inner;
    part.bytes.insert(part.bytes.end(), from, from + count * inner);
  }
  return part;
}

// b behind a along an axis. Errors: Refused, for another type or other extents of the other axes.
inline Array Joined(const Array& a, const Array& b, size_t axis) {
  Numbers extents = b.extents;
  if (axis < extents.size() && axis < a.extents.size()) extents[axis] = a.extents[axis];
  if (a.type != b.type || extents != a.extents || axis >= extents.size()) {
    throw Refused("an array of " + b.type + " and its shape do not fit behind one of " + a.type);
  }
  Array both;
  both.type = a.type;
  both.extents = a.extents;
  both.extents[axis] += b.extents[axis];
  int64_t outer = 1, inner = SizeOf(a.type);
  for (size_t i = 0; i < axis; ++i) outer *= a.extents[i];
  for (size_t i = axis + 1; i < a.extents.size(); ++i) inner *= a.extents[i];
  for (int64_t i = 0; i < outer; ++i) {
    for (const Array* from : {&a, &b}) {
      const int64_t size = from->extents[axis] * inner;
      const auto at = from->bytes.begin() + i * size;
      both.bytes.insert(both.bytes.end(), at, at + size);
    }
  }
  return both;
}

// K and V of as many columns each, (rows, heads, columns, channels). Errors: Refused.
inline void CheckColumns(const Array& k, const Array& v) {
  if (k.extents.size() == 4 && v.extents.size() == 4 && k.extents[2] == v.extents[2]) return;
  throw Refused("K and V of as many columns each, as (rows, heads, columns, channels)");
}

// ---- What the adapter says of itself ----

// What of a kind the library has: kvcheck draws cases inside of one space or another. Lists are
// patterns, in which * stands for any characters; an empty list means everything.
struct CacheSpace {
  Texts layouts;                 // linear, linear:w, ring, ring:keep, chunk
  Texts formats;                 // of K and V: f32, f16, affine:4:g64:*
  Texts x;                       // types of appended vectors: f32, f16, bf16
  std::string rows = "any";      // "single": one row only; "batch": made as a batch
  std::string scales = "any";    // "x": scales of affine formats are of the type x
  bool padding = true;           // New takes left padding
  bool same_dims = false;        // k_dim is v_dim
  bool grouped = true;           // more query heads than heads of K and V
  bool empty_batch = true;       // caches without rows
  bool window = true;            // Attend takes a window
  bool sinks = true;             // Attend takes sinks
  bool same_format = false;      // K and V are stored in one format
  bool stored_as_given = false;  // vectors of type x are stored as x, or in affine formats
  // new, append, prepare, finalize, trim, filter, extend, merge, extract, to_quantized, copy, save,
  // load, damage, attend, drop; not set: all.
  std::optional<Texts> operations;
  // truncate, flip, foreign, version; not set: all.
  std::optional<Texts> damages;
  std::string kind = "cache";
  MSGPACK_DEFINE_MAP(kind, layouts, formats, x, rows, scales, padding, same_dims, grouped,
                     empty_batch, window, sinks, same_format, stored_as_given, operations, damages)
};

struct AttentionSpace {
  // {"q"}: the type of q.
  struct OutputTypes : Texts {
    using Texts::vector;
    template <typename Packer>
    void msgpack_pack(Packer& packer) const {
      size() == 1 && front() == "q" ? packer.pack(front())
                                    : packer.pack(static_cast<const Texts&>(*this));
    }
    void msgpack_unpack(const msgpack::object&) {}
  };

  Texts q;          // types
  Texts k, v;       // formats
  OutputTypes out;  // types
  Texts masks;      // none, causal_bottom_right, *window:*, ...
  bool same_format = false, same_dims = false;
  bool grouped = true;  // more query heads than heads of K and V
  bool lse = true, sinks = true, softcap = true, alibi = true, against_original = true;
  std::string kind = "attention";
  MSGPACK_DEFINE_MAP(kind, q, k, v, out, masks, same_format, same_dims, grouped, lse, sinks,
                     softcap, alibi, against_original)
};

struct CodecSpace {
  Texts formats;
  Texts operations;  // encode, decode, round_trip
  Texts x;           // types of rows
  std::string kind = "codec";
  MSGPACK_DEFINE_MAP(kind, formats, operations, x)
};

// Of caches across requests. What a field says is not there is answered with Unsupported before the
// adapter is asked.
struct PrefixSpace {
  Numbers blocks;          // sizes of blocks
  Texts x;                 // types of vectors
  Texts formats;           // patterns over the formats of kept rows
  bool quantizes = true;   // kept rows may have other formats than x
  bool same_dims = false;  // k_dim is v_dim
  bool windows = true;
  bool entries = true;  // the number of kept prompts can be limited
  bool disk = true;
  bool tiers = true;              // Hit::tier is told
  bool all = true;                // the last token of a prompt may hit
  int64_t least_tokens = 1;       // of a prompt
  std::optional<Texts> identity;  // of model, salt, adapter, version, image; not set: all
  // open, write, read, close, fork, trim_to, evict, clear, epoch, settle, save, load, restart,
  // kill, damage, observe; not set: all.
  std::optional<Texts> operations;
  std::optional<Texts> damages;  // cut, flip, swap, copy, foreign; not set: all
  std::string kind = "prefix";
  MSGPACK_DEFINE_MAP(kind, blocks, x, formats, quantizes, same_dims, windows, entries, disk, tiers,
                     all, least_tokens, identity, operations, damages)
};

// The space of a cache with these operations that keeps rows in memory as they are given: no
// windows, no limit of entries, no disk, no tiers.
inline PrefixSpace PlainPrefixSpace(Texts operations) {
  PrefixSpace space;
  space.quantizes = space.windows = space.entries = space.disk = space.tiers = false;
  space.operations = std::move(operations);
  return space;
}

struct Greeting {
  std::string name{};
  std::string version{};
  Texts kinds{};                           // of "cache", "attention", "codec"; or "prefix"
  std::string plan{};                      // how attention is computed; "": says nothing
  std::string profile{};                   // conventions of attention and codecs; "": the defaults
  std::string cache_profile{};             // conventions of the numbers in State; "": the defaults
  std::vector<CacheSpace> cache_spaces{};  // none of a kind: everything of it
  std::vector<AttentionSpace> attention_spaces{};
  std::vector<CodecSpace> codec_spaces{};
  std::string prefix_profile{};  // what a prefix cache does differently on purpose; "": nothing
  bool ids_alone = false;        // a manager of blocks without content: PrefixRows::blocks only
  std::vector<PrefixSpace> prefix_spaces{};
};

// ---- Caches ----

// What holds for all caches until the next Start.
struct Setup {
  int64_t kv_heads = 1, query_heads = 1;  // query head h reads head h / (query_heads / kv_heads)
  int64_t k_dim = 1, v_dim = 1;           // channels
  std::string x = "f32";                  // type of appended vectors, queries, and outputs
  int64_t growth_tokens = 8;              // step of capacity, where the library lets it be chosen
};

// linear, linear:w=W, ring:w=W, ring:w=W:keep=K, chunk:c=C. Also what is not legal, which New has
// to refuse: W and C are at least 1, K is from 0 to W - 1.
struct Layout {
  std::string text;
  std::string kind;                   // "linear", "ring", "chunk"
  std::optional<int64_t> w, keep, c;  // tokens

  static Layout Parse(const std::string& text) {
    const auto number = [&](const std::string& key) -> std::optional<int64_t> {
      const size_t at = text.find(key);
      if (at == std::string::npos) return std::nullopt;
      return std::stoll(text.substr(at + key.size()));
    };
    return {text, text.substr(0, text.find(':')), number(":w="), number(":keep="), number(":c=")};
  }
};

// left_padding: per row, its first columns, which are no tokens; empty: none.
struct NewCache {
  Layout layout;
  std::string k_format, v_format;
  int64_t rows = 1;
  Numbers left_padding;
};

// Of the columns of the last append. The window holds beside the layout's rule.
struct Query {
  const Array& q;                 // (rows, query_heads, columns, k_dim) of type x
  double scale = 1;               // of q.k
  std::optional<int64_t> window;  // tokens: the newest, the query's own included
  std::vector<float> sinks;       // a logit per query head, whose value is 0; empty: none
};

// plan, profile: how this answer was computed, where it differs from what Greet says; "": not.
struct Attended {
  Array out;  // (rows, query_heads, columns, v_dim) of type x
  std::string plan, profile;
};

// What a cache can tell of itself; what is not set is not judged. C columns, in any order; a column
// holds one token of each row, or nothing.
struct State {
  int64_t rows = 0;
  int64_t queries = 0;  // columns of the last append, while they can be asked about; else 0
  std::optional<std::string> layout, k_format, v_format;
  // As stored, an array (rows, kv_heads, C, ...) per plane. A plain format: one, (..., k_dim). An
  // affine one: codes (..., words) of u32, scales and biases (..., groups). Not set: cannot be
  // shown; then the masks neither.
  std::optional<std::vector<Array>> k, v;
  std::optional<Array> retained;  // b8 (rows, C): which columns hold a token of the row
  std::optional<Array> visible;   // b8 (rows, queries, C): what each query attends to, all included
  std::optional<Numbers> offsets;  // per row: tokens seen, evicted ones included
  std::optional<Numbers> unfed;    // per row: columns of left padding still to come
  std::optional<Numbers> held;     // per row: tokens retained, where they are not shown
  std::optional<int64_t> size;     // tokens that the newest query of the longest row sees
  std::optional<int64_t> live_bytes, capacity_bytes;
  std::optional<bool> empty, trimmable, pending;
  MSGPACK_DEFINE_MAP(rows, queries, layout, k_format, v_format, k, v, retained, visible, offsets,
                     unfed, held, size, live_bytes, capacity_bytes, empty, trimmable, pending)
};

// Of a cache of one row that holds every token in order, as it was given: k and v (1, kv_heads, C,
// channels); each query sees the tokens up to its own. queries: as in State.
inline State StateOfOneRow(const Array& k, const Array& v, int64_t queries) {
  const int64_t tokens = k.extents[2];
  State state;
  state.rows = 1;
  state.queries = queries;
  state.k = {k};
  state.v = {v};
  state.offsets = {tokens};
  state.retained = Array("b8", {1, tokens});
  for (std::byte& held : state.retained->bytes) held = std::byte{1};
  state.visible = Array("b8", {1, queries, tokens});
  for (int64_t query = 0; query < queries; ++query) {
    for (int64_t token = 0; token <= tokens - queries + query; ++token) {
      state.visible->bytes[static_cast<size_t>(query * tokens + token)] = std::byte{1};
    }
  }
  return state;
}

class Cache {
 public:
  virtual ~Cache() = default;

  // k (rows, kv_heads, N, k_dim), v (rows, kv_heads, N, v_dim), both with N columns; another type
  // or shape is to be refused. A library that writes to them is found out.
  virtual void Append(const Array& k, const Array& v) = 0;
  // Of the columns that follow, row b takes lengths[b] as tokens, after its left padding. columns:
  // how many will follow until Finalize, padding of both sides included; -1: unknown.
  virtual void Prepare(const Numbers& /*lengths*/, int64_t /*columns*/) {
    throw Unsupported("prepare");
  }
  virtual void Finalize() { throw Unsupported("finalize"); }
  // Gives the number of tokens that every row has lost: at most count.
  virtual int64_t Trim(int64_t /*count*/) { throw Unsupported("trim"); }
  virtual void Filter(const Numbers& /*rows*/) { throw Unsupported("filter"); }
  // other: made by the same adapter, perhaps this very cache; not to be changed.
  virtual void Extend(const Cache& /*other*/) { throw Unsupported("extend"); }
  virtual void ToQuantized(const std::string& /*k_format*/, const std::string& /*v_format*/) {
    throw Unsupported("to_quantized");
  }
  virtual std::unique_ptr<Cache> Extract(int64_t /*row*/) const { throw Unsupported("extract"); }
  // The copy starts without a step: its State::queries is 0, and `visible` has no queries, until it
  // is appended to. So do caches of Extract, Adapter::Merge and Adapter::Load.
  virtual std::unique_ptr<Cache> Copy() const { throw Unsupported("copy"); }
  // All that Adapter::Load needs, which has to refuse damaged bytes.
  virtual Bytes Save() const { throw Unsupported("save"); }
  virtual Attended Attend(const Query& /*query*/) { throw Unsupported("attend"); }
  virtual State Observe() const = 0;
};

// ---- Cases of attention and codecs ----

// A map of a request. Errors: AdapterError, where a value is missing, nil or of another type.
class Fields {
 public:
  explicit Fields(const msgpack::object& map) : map_(&map) {
    if (map.type != msgpack::type::MAP) throw AdapterError("what should be a map is none");
  }
  bool Has(const char* key) const { return Find(key) != nullptr; }
  const msgpack::object& At(const char* key) const {
    const msgpack::object* found = Find(key);
    if (found == nullptr) throw AdapterError(std::string("the request has no '") + key + "'");
    return *found;
  }
  template <typename T>
  T Get(const char* key) const {
    try {
      return At(key).as<T>();
    } catch (const msgpack::type_error&) {
      throw AdapterError(std::string("'") + key + "' of the request has another type");
    }
  }

 private:
  const msgpack::object* Find(const char* key) const {
    for (const msgpack::object_kv& entry : map_->via.map) {
      if (entry.key.type != msgpack::type::STR || entry.val.is_nil()) continue;
      const auto& text = entry.key.via.str;
      if (text.size == std::strlen(key) && std::memcmp(text.ptr, key, text.size) == 0) {
        return &entry.val;
      }
    }
    return nullptr;
  }
  const msgpack::object* map_;
};

struct CaseRequest {
  std::string text;  // the case as one line
  // The same in parts: kind; of attention batch, query_heads, kv_heads, query_len, kv_len, k_dim,
  // v_dim, q, k, v, out, mask, causal (none, bottom_right, top_left), window, left_padding,
  // mask_array (none, bool, additive), scale, softcap, sinks, alibi, lse (none, natural, base2),
  // against_original; of codecs operation, format, x, rows, head_dim.
  Fields fields;
  // Attention: q (B,Hq,L,Dk), k (B,Hkv,T,Dk), v (B,Hkv,T,Dv) or their _codes, _scales and _biases,
  // mask, sinks (Hq), alibi_slopes (Hq). Codecs: x (rows, head_dim), or codes, scales, biases.
  const std::map<std::string, Array>& inputs;
  std::string plan, profile;  // by which the answer will be judged
};

// Attention: out (B,Hq,L,Dv), lse (B,Hq,L). Codecs: codes, scales, biases; or y (rows, head_dim).
struct CaseAnswer {
  std::map<std::string, Array> outputs;
  std::string plan, profile;  // as in Attended
};

// ---- The adapter ----

class Adapter {
 public:
  virtual ~Adapter() = default;

  // The same each time: kvcheck starts several processes, and a new one where it lost one.
  virtual Greeting Greet() = 0;
  virtual CaseAnswer Answer(const CaseRequest& /*request*/) { throw Unsupported("this case"); }
  // The caches that were made before are gone.
  virtual void Start(const Setup& /*setup*/) { throw Unsupported("caches"); }
  virtual std::unique_ptr<Cache> New(const NewCache& /*request*/) { throw Unsupported("new"); }
  // Caches of one row each as one batch; not to be changed. One may be named twice.
  virtual std::unique_ptr<Cache> Merge(const std::vector<const Cache*>& /*caches*/) {
    throw Unsupported("merge");
  }
  // bytes: of Cache::Save, perhaps damaged.
  virtual std::unique_ptr<Cache> Load(const Bytes& /*bytes*/) { throw Unsupported("load"); }
  // Makes of saved bytes a sound record of a version that nobody has. Other damage needs no help.
  virtual void ChangeVersion(Bytes* /*bytes*/) { throw Unsupported("damage of the version"); }
};

// ---- Caches across requests ----

// What a case wishes for; the answer is PrefixStarted.
struct PrefixSetup {
  int64_t block_tokens = 1;
  int64_t capacity_tokens = 0;
  int64_t max_entries = 0;  // of kept prompts; 0: any number
  int64_t layers = 1, kv_heads = 1, k_dim = 1, v_dim = 1;
  std::string x;              // type of the vectors
  std::string k, v;           // formats of kept rows
  int64_t quantize_from = 0;  // prompts of at least so many tokens are kept in k and v
  int64_t window = 0;         // tokens that odd layers see; 0: all

  // K and V of no token: (layers, kv_heads, 0, channels).
  std::pair<Array, Array> NoRows() const {
    return {Array(x, {layers, kv_heads, 0, k_dim}), Array(x, {layers, kv_heads, 0, v_dim})};
  }
};

inline bool BeginsWith(const Numbers& tokens, const Numbers& beginning) {
  return beginning.size() <= tokens.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

struct PrefixStarted {
  int64_t block_tokens = 1;     // of hits, as it really is; 1 of stores of snapshots
  int64_t capacity_tokens = 0;  // that requests and kept prompts may have together
  bool holds_requests = true;   // false: open requests do not count in it
};

// Whose prompt it is. Equal identities share prompts, different ones do not.
struct Identity {
  std::optional<std::string> model, salt, adapter, image;
  int64_t version = 0;  // of the adapter's weights; 0: none

  auto Tie() const { return std::tie(model, salt, adapter, image, version); }
  bool operator==(const Identity& other) const { return Tie() == other.Tie(); }
  bool operator<(const Identity& other) const { return Tie() < other.Tie(); }
};

// What a request has, as a model would read it: k (layers, kv_heads, tokens, k_dim), v (layers,
// kv_heads, tokens, v_dim), both of type x.
struct PrefixRows {
  Array k, v;
  std::optional<Array> retained;  // b8 (layers, tokens): which rows are there; not set: all
  // The one that holds tokens i block_tokens and on; -1: gone. Not set: there is nothing to show.
  std::optional<Numbers> blocks;
};

// A request of the server, from Open to Close.
class PrefixRequest {
 public:
  virtual ~PrefixRequest() = default;
  // K and V of its next tokens, whose ids these are; shapes as in PrefixRows. False: there is no
  // room, and nothing has changed. Another type or shape is to be refused.
  virtual bool Write(const Numbers& tokens, const Array& k, const Array& v) = 0;
  virtual PrefixRows Read() const = 0;
  // It ends; keep: others may find its tokens from now on.
  virtual void Close(bool keep) = 0;
  // A second request with the same tokens, which goes on alone.
  virtual std::unique_ptr<PrefixRequest> Fork() { throw Unsupported("fork"); }
  // Only its first `tokens` tokens are left.
  virtual void TrimTo(int64_t /*tokens*/) { throw Unsupported("trim_to"); }
};

struct Hit {
  std::unique_ptr<PrefixRequest> request;
  int64_t tokens = 0;  // the first so many of the prompt are there
  std::string tier;    // "memory", "disk"; "": it cannot tell
};

// What is not set is not judged (PrefixCounters in reference/spec/prefix_implementation.h).
struct PrefixCounters {
  std::optional<int64_t> entries, bytes, budget_bytes;
  std::optional<int64_t> blocks_total, blocks_free, blocks_cached, blocks_held;
  std::optional<int64_t> lookups, hits, hit_tokens;
};

class PrefixAdapter {
 public:
  virtual ~PrefixAdapter() = default;
  virtual Greeting Greet() = 0;
  // Requests and stores of before are gone. folder: for files; not set: no disk. again: what an
  // earlier process has left there is expected.
  virtual PrefixStarted Start(const PrefixSetup& setup, const std::optional<std::string>& folder,
                              bool again) = 0;
  // Looks the prompt up. all: whether its last token may hit too.
  virtual Hit Open(const Numbers& tokens, const Identity& who, bool all) = 0;
  // Kept prompts that no request holds go until there is room for so many tokens.
  virtual void Evict(int64_t /*tokens*/) { throw Unsupported("evict"); }
  // Everything that no request holds is forgotten, in every tier.
  virtual void Clear() { throw Unsupported("clear"); }
  // The weights have changed: nothing of before may hit again.
  virtual void Epoch() { throw Unsupported("epoch"); }
  // What is written in the background is written.
  virtual void Settle() {}
  // All that is kept, into this folder, which is new.
  virtual void Save(const std::string& /*path*/) { throw Unsupported("save"); }
  virtual void Load(const std::string& /*path*/) { throw Unsupported("load"); }
  virtual PrefixCounters Observe() { return {}; }
};

// Answers requests until there are no more. Gives the exit code of main: 0, or 2 with a line on
// standard error when what arrives is no request. To be called before anything is printed: from
// then on descriptor 1 is standard error and descriptor 0 is empty, for whatever library prints or
// reads.
inline int Serve(Adapter& adapter);
inline int Serve(PrefixAdapter& adapter);

// A sign of life, of use inside of a long call: kvcheck ends a process that gives none for its
// limit (10 s unless told). On the thread that answers; may be called as often as one likes.
inline void Progress();

// ---- How it is done ----

namespace internal {

constexpr size_t kMostFrameBytes = size_t{64} << 20;
constexpr size_t kHeaderBytes = 8;
inline int answers = -1;  // the descriptor, while requests are answered

inline bool Send(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(answers, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Bytes read: fewer than size at the end of the stream.
inline size_t Receive(int requests, char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(requests, data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

// The map of an answer, in the frame that it is sent in.
class Writer {
 public:
  void Start() {
    buffer_.clear();
    entries_ = 0;
    buffer_.write("\0\0\0\0\0\0\0\0\xdf\0\0\0\0", kHeaderBytes + 5);  // length, map, its entries
  }
  template <typename T>
  void Put(const char* key, const T& value) {
    ++entries_;
    msgpack::pack(buffer_, key);
    msgpack::pack(buffer_, value);
  }
  void PutSaid(const char* key, const std::string& text) {
    if (!text.empty()) Put(key, text);
  }
  // The only entry: what was written is forgotten.
  void Instead(const char* key, const std::string& text) {
    Start();
    Put(key, text);
  }
  size_t size() const { return buffer_.size() - kHeaderBytes; }
  bool SendFrame() {
    for (size_t i = 0; i < kHeaderBytes; ++i) {
      buffer_.data()[i] = static_cast<char>(uint64_t{size()} >> (8 * i) & 0xff);
    }
    for (size_t i = 0; i < 4; ++i) {
      buffer_.data()[kHeaderBytes + 4 - i] = static_cast<char>(entries_ >> (8 * i) & 0xff);
    }
    return Send(buffer_.data(), buffer_.size());
  }

 private:
  msgpack::sbuffer buffer_;
  uint32_t entries_ = 0;
};

struct Spaces {
  const Greeting& of;
  template <typename Packer>
  void msgpack_pack(Packer& packer) const {
    packer.pack_array(static_cast<uint32_t>(of.cache_spaces.size() + of.attention_spaces.size() +
                                            of.codec_spaces.size() + of.prefix_spaces.size()));
    for (const CacheSpace& space : of.cache_spaces) packer.pack(space);
    for (const AttentionSpace& space : of.attention_spaces) packer.pack(space);
    for (const CodecSpace& space : of.codec_spaces) packer.pack(space);
    for (const PrefixSpace& space : of.prefix_spaces) packer.pack(space);
  }
};

inline void PutGreeting(const Greeting& greeting, Writer& writer) {
  writer.Put("protocol", 1);
  writer.Put("name", greeting.name);
  writer.Put("version", greeting.version);
  writer.Put("kinds", greeting.kinds);
  writer.PutSaid("plan", greeting.plan);
  writer.PutSaid("profile", greeting.profile);
  writer.PutSaid("cache_profile", greeting.cache_profile);
  writer.PutSaid("prefix_profile", greeting.prefix_profile);
  if (greeting.ids_alone) writer.Put("ids_alone", true);
  writer.Put("spaces", Spaces{greeting});
}

// Reads requests and sends what Answer has written.
class Conversation {
 public:
  virtual ~Conversation() = default;

  // Errors: std::exception, for what is no request.
  void Handle(const std::vector<char>& frame, Writer& writer) {
    // Bytes stay in the frame. No frame has more entries than bytes, whatever it says.
    const msgpack::unpack_limit limit(frame.size(), frame.size(), frame.size(), frame.size(), 0,
                                      32);
    const auto refer = [](msgpack::type::object_type, size_t, void*) { return true; };
    const msgpack::object_handle handle =
        msgpack::unpack(frame.data(), frame.size(), refer, nullptr, limit);
    const Fields request(handle.get());
    const std::string name = request.Get<std::string>("do");
    writer.Start();
    try {
      Answer(name, request, writer);
    } catch (const std::exception& error) {
      writer.Instead("failed", error.what());
    } catch (...) {
      writer.Instead("failed", "what was thrown is no std::exception");
    }
    if (writer.size() > kMostFrameBytes) {
      writer.Instead(name == "case" ? "unsupported" : "failed",
                     "the answer does not fit a frame of the protocol (64 MiB)");
    }
  }

 protected:
  // Errors: AdapterError; what is no std::exception.
  virtual void Answer(const std::string& name, const Fields& request, Writer& writer) = 0;

  // What the library refuses and does not have.
  template <typename Request>
  static void Ask(Writer& writer, Request ask) {
    try {
      ask();
    } catch (const AdapterError&) {
      throw;
    } catch (const Unsupported& error) {
      writer.Instead("unsupported", error.what());
    } catch (const std::exception& error) {
      writer.Instead("refused", error.what());
    }
  }
};

class Server : public Conversation {
 public:
  explicit Server(Adapter* adapter) : adapter_(adapter) {}

 private:
  void Answer(const std::string& name, const Fields& request, Writer& writer) override {
    if (request.Has("drop")) {
      for (const int64_t number : request.Get<Numbers>("drop")) caches_.erase(number);
    }
    lent_.clear();
    const Fields lender = name == "case" ? Fields(request.At("inputs")) : request;
    Ask(writer, [&] { Call(name, request, writer); });
    for (const auto& [key, array] : lent_) {
      const msgpack::object& sent = lender.At(key.c_str()).via.array.ptr[2];
      const auto* first = reinterpret_cast<const std::byte*>(sent.via.bin.ptr);
      if (std::equal(array.bytes.begin(), array.bytes.end(), first)) continue;
      if (name == "case") writer.Instead("refused", "the implementation changed its input " + key);
      writer.Put("inputs_changed", true);
      break;
    }
    if (!request.Has("observe")) return;
    std::vector<std::optional<State>> states;
    for (const int64_t number : request.Get<Numbers>("observe")) {
      const auto found = caches_.find(number);
      states.emplace_back();
      if (found != caches_.end()) states.back() = found->second->Observe();
    }
    writer.Put("states", states);
  }

  void Call(const std::string& name, const Fields& request, Writer& writer) {
    if (name == "hello") return PutGreeting(adapter_->Greet(), writer);
    if (name == "case") return Case(request, writer);
    if (name == "start") return Start(Fields(request.At("setup")));
    if (name == "new") {
      NewCache made{Layout::Parse(request.Get<std::string>("layout")),
                    request.Get<std::string>("k"), request.Get<std::string>("v"),
                    request.Get<int64_t>("rows"), request.Get<Numbers>("padding")};
      return Place(request, adapter_->New(made));
    }
    if (name == "merge") {
      std::vector<const Cache*> caches;
      for (const int64_t number : request.Get<Numbers>("caches")) caches.push_back(&At(number));
      return Place(request, adapter_->Merge(caches));
    }
    if (name == "load") return Place(request, adapter_->Load(Saved(request).bytes));
    if (name == "damage") return Damage(request, writer);
    if (name == "observe") return;
    Cache& cache = At(request.Get<int64_t>("cache"));
    if (name == "append") {
      const Array& k = Lend(request, "k");
      return cache.Append(k, Lend(request, "v"));
    }
    if (name == "prepare") {
      return cache.Prepare(request.Get<Numbers>("lengths"), request.Get<int64_t>("columns"));
    }
    if (name == "finalize") return cache.Finalize();
    if (name == "trim") return writer.Put("trimmed", cache.Trim(request.Get<int64_t>("count")));
    if (name == "filter") return cache.Filter(request.Get<Numbers>("rows"));
    if (name == "extend") return cache.Extend(At(request.Get<int64_t>("other")));
    if (name == "to_quantized")
      return cache.ToQuantized(request.Get<std::string>("k"), request.Get<std::string>("v"));
    if (name == "extract") return Place(request, cache.Extract(request.Get<int64_t>("row")));
    if (name == "copy") return Place(request, cache.Copy());
    if (name == "attend") return Attend(cache, request, writer);
    if (name == "drop") return static_cast<void>(caches_.erase(request.Get<int64_t>("cache")));
    if (name != "save") throw AdapterError("there is no request '" + name + "'");
    const Bytes bytes = cache.Save();
    saved_[request.Get<std::string>("key")] = {bytes, bytes};
  }

  void Case(const Fields& request, Writer& writer) {
    const msgpack::object& inputs = request.At("inputs");
    for (const msgpack::object_kv& entry : inputs.via.map) {
      Lend(Fields(inputs), entry.key.as<std::string>().c_str());
    }
    const CaseRequest asked{request.Get<std::string>("case"), Fields(request.At("fields")), lent_,
                            request.Get<std::string>("plan"), request.Get<std::string>("profile")};
    const CaseAnswer answer = adapter_->Answer(asked);
    writer.Put("outputs", answer.outputs);
    writer.PutSaid("plan", answer.plan);
    writer.PutSaid("profile", answer.profile);
  }

  void Start(const Fields& setup) {
    caches_.clear();
    saved_.clear();
    adapter_->Start({setup.Get<int64_t>("kv_heads"), setup.Get<int64_t>("query_heads"),
                     setup.Get<int64_t>("k_dim"), setup.Get<int64_t>("v_dim"),
                     setup.Get<std::string>("x"), setup.Get<int64_t>("growth_tokens")});
  }

  void Attend(Cache& cache, const Fields& request, Writer& writer) {
    Query query{Lend(request, "q"), request.Get<double>("scale"), {}, {}};
    if (request.Has("window")) query.window = request.Get<int64_t>("window");
    if (request.Has("sinks")) {
      const Array sinks = request.Get<Array>("sinks");
      query.sinks.assign(sinks.As<float>(), sinks.As<float>() + sinks.Count());
    }
    const Attended attended = cache.Attend(query);
    writer.Put("out", attended.out);
    writer.PutSaid("plan", attended.plan);
    writer.PutSaid("profile", attended.profile);
  }

  struct SavedBytes {
    Bytes bytes, as_put;
  };

  void Damage(const Fields& request, Writer& writer) {
    SavedBytes& saved = Saved(request);
    const std::string how = request.Get<std::string>("how");
    const auto place = static_cast<uint64_t>(request.Get<int64_t>("at"));
    const size_t at = saved.bytes.empty() ? 0 : static_cast<size_t>(place % saved.bytes.size());
    if (how == "version") {
      adapter_->ChangeVersion(&saved.bytes);
    } else if (how == "foreign") {
      saved.bytes.assign(at + 1, std::byte{'x'});
    } else if (how == "truncate") {
      saved.bytes.resize(saved.bytes.size() - (saved.bytes.empty() ? 0 : 1));
    } else if (how == "flip" && !saved.bytes.empty()) {
      saved.bytes[at] ^= static_cast<std::byte>(1u << (place % 8));
    } else if (how != "flip") {
      throw Unsupported("damage '" + how + "'");
    }
    writer.Put("as_put", saved.bytes == saved.as_put);
  }

  SavedBytes& Saved(const Fields& request) {
    const auto found = saved_.find(request.Get<std::string>("key"));
    if (found == saved_.end()) throw Refused("nothing is saved under this key");
    return found->second;
  }

  Cache& At(int64_t number) {
    const auto found = caches_.find(number);
    if (found == caches_.end()) throw AdapterError("there is no cache " + std::to_string(number));
    return *found->second;
  }

  void Place(const Fields& request, std::unique_ptr<Cache> cache) {
    if (cache == nullptr) throw AdapterError("no cache was made");
    caches_[request.Get<int64_t>("out")] = std::move(cache);
  }

  // A copy of its own: what happens to it is compared with what arrived.
  const Array& Lend(const Fields& request, const char* key) {
    return lent_[key] = request.Get<Array>(key);
  }

  Adapter* adapter_;
  std::map<int64_t, std::unique_ptr<Cache>> caches_;
  std::map<std::string, SavedBytes> saved_;
  std::map<std::string, Array> lent_;
};

class PrefixServer : public Conversation {
 public:
  explicit PrefixServer(PrefixAdapter* adapter)
      : adapter_(adapter), spaces_(adapter->Greet().prefix_spaces) {
    if (spaces_.empty()) spaces_.emplace_back();
  }
  ~PrefixServer() override {
    std::error_code ignored;
    if (!own_folder_.empty()) std::filesystem::remove_all(own_folder_, ignored);
  }
  PrefixServer(const PrefixServer&) = delete;
  PrefixServer& operator=(const PrefixServer&) = delete;

 private:
  void Answer(const std::string& name, const Fields& request, Writer& writer) override {
    Ask(writer, [&] { Call(name, request, writer); });
  }

  void Call(const std::string& name, const Fields& request, Writer& writer) {
    if (name == "hello") return PutGreeting(adapter_->Greet(), writer);
    if (name == "start") return Start(request, writer);
    if (name == "open") return Open(request, writer);
    if (name == "evict") return adapter_->Evict(request.Get<int64_t>("tokens"));
    if (name == "clear") return adapter_->Clear();
    if (name == "epoch") return adapter_->Epoch();
    if (name == "settle") return adapter_->Settle();
    if (name == "save") return Save(request);
    if (name == "load") return Load(request);
    if (name == "observe") return PutCounters(adapter_->Observe(), writer);
    const int64_t number = request.Get<int64_t>("request");
    PrefixRequest& asked = At(number);
    if (name == "write") {
      const bool has_room = asked.Write(request.Get<Numbers>("tokens"), request.Get<Array>("k"),
                                        request.Get<Array>("v"));
      if (!has_room) writer.Put("full", true);
      return;
    }
    if (name == "read") return PutRows(asked.Read(), writer);
    if (name == "trim_to") return asked.TrimTo(request.Get<int64_t>("tokens"));
    if (name == "fork") return Place(request.Get<int64_t>("out"), asked.Fork());
    if (name != "close") throw AdapterError("there is no request '" + name + "'");
    asked.Close(request.Get<bool>("keep"));
    requests_.erase(number);
  }

  void Start(const Fields& request, Writer& writer) {
    const Fields fields(request.At("setup"));
    PrefixSetup setup;
    for (const auto& [key, number] :
         {std::pair<const char*, int64_t*>{"block_tokens", &setup.block_tokens},
          {"capacity_tokens", &setup.capacity_tokens},
          {"max_entries", &setup.max_entries},
          {"layers", &setup.layers},
          {"kv_heads", &setup.kv_heads},
          {"k_dim", &setup.k_dim},
          {"v_dim", &setup.v_dim},
          {"quantize_from", &setup.quantize_from},
          {"window", &setup.window}}) {
      *number = fields.Get<int64_t>(key);
    }
    setup.x = fields.Get<std::string>("x");
    setup.k = fields.Get<std::string>("k");
    setup.v = fields.Get<std::string>("v");
    folder_.reset();
    if (request.Has("folder")) folder_ = request.Get<std::string>("folder");
    std::string lacking;
    for (const PrefixSpace& space : spaces_) {
      lacking = Lacks(space, setup);
      if (lacking.empty()) break;
    }
    if (!lacking.empty()) throw Unsupported("such a setup: " + lacking);
    requests_.clear();
    std::optional<std::string> store;
    if (folder_) {
      store = *folder_ + "/store";
      std::filesystem::create_directories(*store);
    }
    const PrefixStarted started =
        adapter_->Start(setup, store, request.Has("again") && request.Get<bool>("again"));
    writer.Put("block_tokens", started.block_tokens);
    writer.Put("capacity_tokens", started.capacity_tokens);
    writer.Put("holds_requests", started.holds_requests);
  }

  // What of the setup the space has not; "": nothing.
  std::string Lacks(const PrefixSpace& space, const PrefixSetup& setup) const {
    const auto has = [](const auto& list, const auto& value) {
      return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
    };
    const bool is_plain = setup.k == setup.x && setup.v == setup.x;
    if (!has(space.blocks, setup.block_tokens)) return "blocks of another size";
    if (!has(space.x, setup.x)) return "vectors of " + setup.x;
    if (!space.quantizes && !is_plain) return "no quantizes";
    if (!space.windows && setup.window != 0) return "no windows";
    if (!space.entries && setup.max_entries != 0) return "no entries";
    if (!space.disk && folder_) return "no disk";
    if (space.same_dims && setup.k_dim != setup.v_dim) return "k_dim is v_dim";
    for (const std::string& kept : {setup.k, setup.v}) {
      const auto fits = [&](const std::string& pattern) {
        return fnmatch(pattern.c_str(), kept.c_str(), 0) == 0;
      };
      if (kept != setup.x && !space.formats.empty() &&
          std::none_of(space.formats.begin(), space.formats.end(), fits)) {
        return "no " + kept;
      }
    }
    return "";
  }

  void Open(const Fields& request, Writer& writer) {
    const Fields fields(request.At("who"));
    Identity who;
    for (const auto& [key, text] :
         {std::pair<const char*, std::optional<std::string>*>{"model", &who.model},
          {"salt", &who.salt},
          {"adapter", &who.adapter},
          {"image", &who.image}}) {
      if (!fields.Has(key)) continue;
      NeedIdentity(key);
      *text = fields.Get<std::string>(key);
    }
    if (fields.Has("version")) who.version = fields.Get<int64_t>("version");
    if (who.version != 0) NeedIdentity("version");
    Hit hit = adapter_->Open(request.Get<Numbers>("tokens"), who, request.Get<bool>("all"));
    writer.Put("hit", hit.tokens);
    writer.PutSaid("tier", hit.tier);
    Place(request.Get<int64_t>("request"), std::move(hit.request));
    PutRows(At(request.Get<int64_t>("request")).Read(), writer);
  }

  void NeedIdentity(const char* field) const {
    for (const PrefixSpace& space : spaces_) {
      if (!space.identity) return;
      if (std::find(space.identity->begin(), space.identity->end(), field) !=
          space.identity->end()) {
        return;
      }
    }
    throw Unsupported(std::string("identities have no ") + field + " here");
  }

  void PutRows(const PrefixRows& rows, Writer& writer) const {
    if (!adapter_->Greet().ids_alone) {
      writer.Put("k", rows.k);
      writer.Put("v", rows.v);
      if (rows.retained) writer.Put("retained", *rows.retained);
    }
    if (rows.blocks) writer.Put("blocks", *rows.blocks);
  }

  static void PutCounters(const PrefixCounters& told, Writer& writer) {
    for (const auto& [key, count] :
         {std::pair<const char*, std::optional<int64_t>>{"entries", told.entries},
          {"bytes", told.bytes},
          {"budget_bytes", told.budget_bytes},
          {"blocks_total", told.blocks_total},
          {"blocks_free", told.blocks_free},
          {"blocks_cached", told.blocks_cached},
          {"blocks_held", told.blocks_held},
          {"lookups", told.lookups},
          {"hits", told.hits},
          {"hit_tokens", told.hit_tokens}}) {
      if (count) writer.Put(key, *count);
    }
  }

  // In the case's own folder, which outlives this process, where there is one.
  std::string SavedUnder(const Fields& request) {
    if (!folder_ && own_folder_.empty()) {
      own_folder_ = std::filesystem::temp_directory_path().string() + "/kvcheck_adapter_XXXXXX";
      if (mkdtemp(own_folder_.data()) == nullptr) {
        own_folder_.clear();
        throw AdapterError("no folder can be made for what is saved");
      }
    }
    return (folder_ ? *folder_ : own_folder_) + "/saved/" + request.Get<std::string>("key");
  }

  void Save(const Fields& request) {
    const std::string path = SavedUnder(request);
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    try {
      adapter_->Save(path);
    } catch (...) {
      std::filesystem::remove_all(path);
      throw;
    }
  }

  void Load(const Fields& request) {
    const std::string path = SavedUnder(request);
    if (!std::filesystem::is_directory(path)) throw Refused("nothing is saved under this key");
    adapter_->Load(path);
  }

  PrefixRequest& At(int64_t number) {
    const auto found = requests_.find(number);
    if (found == requests_.end()) {
      throw AdapterError("request " + std::to_string(number) + " is not open");
    }
    return *found->second;
  }

  void Place(int64_t number, std::unique_ptr<PrefixRequest> request) {
    if (request == nullptr) throw AdapterError("no request was made");
    requests_[number] = std::move(request);
  }

  PrefixAdapter* adapter_;
  std::vector<PrefixSpace> spaces_;
  std::map<int64_t, std::unique_ptr<PrefixRequest>> requests_;
  std::optional<std::string> folder_;
  std::string own_folder_;
};

inline int Converse(Conversation& conversation);

}  // namespace internal

inline void Progress() {
  static std::chrono::steady_clock::time_point last;
  const auto now = std::chrono::steady_clock::now();
  if (internal::answers < 0 || now - last < std::chrono::milliseconds(200)) return;
  last = now;
  internal::Send("\0\0\0\0\0\0\0", internal::kHeaderBytes);
}

inline int Serve(Adapter& adapter) {
  internal::Server server(&adapter);
  return internal::Converse(server);
}

inline int Serve(PrefixAdapter& adapter) {
  internal::PrefixServer server(&adapter);
  return internal::Converse(server);
}

inline int internal::Converse(Conversation& conversation) {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("this program is started by kvcheck: kvcheck fuzz --impl './this_program'\n",
               stderr);
    return 2;
  }
  const int requests = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  internal::answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (requests < 0 || internal::answers < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::perror("kvcheck_adapter: cannot move the standard streams");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // kvcheck may be gone before the answer
  internal::Writer writer;
  std::vector<char> frame;
  try {
    while (true) {
      unsigned char header[internal::kHeaderBytes];
      const size_t got =
          internal::Receive(requests, reinterpret_cast<char*>(header), sizeof header);
      if (got == 0) return 0;
      uint64_t size = 0;
      for (size_t i = sizeof header; i-- > 0;) size = size << 8 | header[i];
      if (got < sizeof header || size > internal::kMostFrameBytes) {
        throw AdapterError("the length of a frame is incomplete, or more than 64 MiB");
      }
      frame.resize(static_cast<size_t>(size));
      if (internal::Receive(requests, frame.data(), frame.size()) < frame.size()) {
        throw AdapterError("requests end within a frame");
      }
      conversation.Handle(frame, writer);
      if (!writer.SendFrame()) return 0;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvcheck_adapter: what arrives is no request: %s\n", error.what());
    return 2;
  }
}

}  // namespace kvcheck_adapter

#endif  // KVCHECK_ADAPTER_H_
