/* Archives of the form ustar, without compression. What a member's name could reach is bounded by what the module sees;
 * names that lead up, or are absolute, are refused all the same, so that an archive unpacks alike everywhere. */
#include "tools.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 512

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], kind, link[100], magic[6], version[2], user[32],
        group[32], major[8], minor[8], prefix[155], rest[12];
};

static bool verbose;

static unsigned checksum(const struct header *header)
{
    const unsigned char *bytes = (const unsigned char *)header;
    unsigned sum = 0;
    for (size_t at = 0; at < BLOCK; at++) sum += at >= 148 && at < 156 ? ' ' : bytes[at];
    return sum;
}

static int put_path(FILE *out, const char *path)
{
    struct stat status;
    if (lstat(path, &status)) return complain(path);
    bool is_tree = S_ISDIR(status.st_mode);
    if (!is_tree && !S_ISREG(status.st_mode)) return wrong("is left out: neither file nor directory", path), 0;
    struct header header = {0};
    char *name = is_tree ? joined(path, "") : copy(path);
    while (!strncmp(name, "./", 2) && name[2]) name += 2;
    while (*name == '/') name++;
    size_t size = strlen(name);
    if (size > 100) {
        char *cut = name + size - 101;
        while (*cut && *cut != '/') cut++;
        if (!*cut || cut - name > 155 || strlen(cut + 1) > 100) return wrong("its name is too long", path);
        memcpy(header.prefix, name, (size_t)(cut - name));
        name = cut + 1;
    }
    memcpy(header.name, name, strlen(name));
    sprintf(header.mode, "%07o", is_tree ? 0755 : 0644);
    sprintf(header.uid, "%07o", 0), sprintf(header.gid, "%07o", 0);
    snprintf(header.size, sizeof header.size, "%011llo", is_tree ? 0ULL : (unsigned long long)status.st_size);
    snprintf(header.time, sizeof header.time, "%011llo", (unsigned long long)status.st_mtime);
    header.kind = is_tree ? '5' : '0';
    memcpy(header.magic, "ustar", 6), memcpy(header.version, "00", 2);
    snprintf(header.sum, sizeof header.sum, "%06o", checksum(&header));
    header.sum[7] = ' ';
    if (verbose) fprintf(stderr, "%s\n", path);
    if (fwrite(&header, BLOCK, 1, out) != 1) return complain("write error");
    if (!is_tree) {
        FILE *in = fopen(path, "rb");
        char piece[BLOCK];
        long long left = status.st_size;
        if (!in) return complain(path);
        while (left > 0) {
            memset(piece, 0, sizeof piece);
            size_t count = fread(piece, 1, left < BLOCK ? (size_t)left : BLOCK, in);
            if (!count) break;
            left -= (long long)count;
            if (fwrite(piece, BLOCK, 1, out) != 1) return fclose(in), complain("write error");
        }
        fclose(in);
        return left ? wrong("changed while it was read", path) : 0;
    }
    DIR *directory = opendir(path);
    struct dirent *entry;
    int code = 0;
    if (!directory) return complain(path);
    while ((entry = readdir(directory)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) code |= put_path(out, joined(path, entry->d_name));
    closedir(directory);
    return code;
}

static bool leads_out(const char *name)
{
    if (*name == '/') return true;
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (!strncmp(at, "..", 2) && (!at[2] || at[2] == '/')) return true;
    return false;
}

static void make_parents(char *path)
{
    for (char *slash = path; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

static int get_all(FILE *in, bool extract)
{
    struct header header;
    int code = 0;
    while (fread(&header, BLOCK, 1, in) == 1 && header.name[0]) {
        char name[300] = {0};
        if ((unsigned)strtol(header.sum, NULL, 8) != checksum(&header)) return wrong("is no archive, or damaged", "checksum");
        if (header.prefix[0]) sprintf(name, "%.155s/", header.prefix);
        sprintf(name + strlen(name), "%.100s", header.name);
        char digits[13] = {0};
        memcpy(digits, header.size, 12);
        unsigned long long left = strtoull(digits, NULL, 8);
        bool is_tree = header.kind == '5', is_file = header.kind == '0' || !header.kind, out = leads_out(name);
        FILE *target = NULL;
        if (!extract || verbose) puts(name);
        if (extract && (out || (!is_tree && !is_file))) {
            wrong(out ? "leads out, so it is left out" : "neither file nor directory, so it is left out", name);
            code = 1;
        } else if (extract && is_tree) {
            make_parents(name);
            if (mkdir(name, 0777) && errno != EEXIST) code = complain(name);
        } else if (extract) {
            make_parents(name);
            unlink(name); /* never through a link that lies there */
            if (!(target = fopen(name, "wb"))) code = complain(name);
        }
        char piece[BLOCK];
        for (unsigned long long done = 0; done < left; done += BLOCK) {
            if (fread(piece, BLOCK, 1, in) != 1) return wrong("ends in the middle", name);
            size_t count = left - done < BLOCK ? (size_t)(left - done) : BLOCK;
            if (target && fwrite(piece, 1, count, target) != count) code = complain(name);
        }
        if (target && fclose(target)) code = complain(name);
    }
    return code;
}

TOOL(tar)
{
    const char *archive = "-", *place = NULL;
    char verb = 0;
    int at = 1, code = 0;
    for (bool first = true; at < argc && (argv[at][0] == '-' || first); at++, first = false)
        for (const char *sign = argv[at] + (argv[at][0] == '-'); *sign; sign++) {
            if (strchr("cxt", *sign)) verb = *sign;
            else if (*sign == 'v') verbose = true;
            else if (*sign == 'z' || *sign == 'j' || *sign == 'J') return wrong("compression is not here", argv[at]);
            else if (*sign == 'f' || *sign == 'C') {
                const char *value = sign[1] ? sign + 1 : argv[at + 1];
                if (!value) return wrong("lacks its value", argv[at]);
                if (*sign == 'f') archive = value;
                else place = value;
                if (!sign[1]) at++;
                break;
            } else return wrong("is not known here", argv[at]);
        }
    if (!verb) return wrong("say what to do", "c, x or t");
    bool write = verb == 'c';
    FILE *file = !strcmp(archive, "-") ? (write ? stdout : stdin) : fopen(archive, write ? "wb" : "rb");
    if (!file) return complain(archive);
    if (place && chdir(place)) return complain(place);
    if (!write) return get_all(file, verb == 'x');
    if (at >= argc) return wrong("an archive of nothing is not made", archive);
    for (; at < argc; at++) code |= put_path(file, argv[at]);
    static const char END[2 * BLOCK];
    if (fwrite(END, sizeof END, 1, file) != 1 || (file != stdout && fclose(file))) return complain(archive);
    return code;
}
